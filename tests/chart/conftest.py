from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.chart.render import CHART, Manifest, manifests, template

Render = Callable[..., list[Manifest]]


def ci(case: str) -> Path:
    return CHART / "ci" / f"{case}-values.yaml"


@pytest.fixture
def render(tmp_path: Path) -> Render:
    """Render a `ci` case with some values changed: render("cpu-trial", {"replicas": 2})."""

    def rendered(case: str, changes: dict[str, Any] | None = None) -> list[Manifest]:
        changed = tmp_path / "changes.yaml"
        changed.write_text(yaml.safe_dump(changes or {}), "utf-8")
        return manifests(template(ci(case), changed))

    return rendered


def policy(documents: list[Manifest], component: str = "server") -> Manifest:
    (found,) = (
        document["spec"]
        for document in documents
        if document["kind"] == "NetworkPolicy"
        and document["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        == component
    )
    return dict(found)
