"""Prometheus's own judge of rules."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.dashboards_promtool.hours import Table


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def holds(
    folder: Path,
    rules: Path,
    table: Table,
    every: str,
    expected: Iterable[dict[str, Any]],
    kind: str = "promql_expr_test",
) -> None:
    """Run promtool over `table`, a sample a minute."""
    test = folder / "test.yaml"
    document = {
        "rule_files": [str(rules)],
        "evaluation_interval": every,
        # By chance otherwise, and what was recorded a quarter of an hour ago is too old.
        "group_eval_order": ["hunyuan-ocr-recorded", "hunyuan-ocr-alerts"],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": s, "values": v} for s, v in table.items()],
                kind: list(expected),
            }
        ],
    }
    test.write_text(yaml.safe_dump(document), "utf-8")
    promtool("test", "rules", test)
