"""The chart as Helm 3 renders it and as the API server's own Pod Security code judges it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.chart.generate import GOLDEN
from scripts.chart.render import RenderError, case, manifests, template, values_files
from scripts.chart.tools import tool


def by_name(text: str) -> dict[tuple[str, str], object]:
    return {(m["kind"], m["metadata"]["name"]): m for m in manifests(text)}


@pytest.mark.parametrize("values", values_files(), ids=case)
def test_helm_3_renders_the_same(values: Path) -> None:
    golden = (GOLDEN / f"{case(values)}.yaml").read_text("utf-8")
    assert by_name(template(values, helm=tool("helm3"))) == by_name(golden)


def test_helm_3_refuses_with_the_same_words() -> None:
    values = next(path for path in values_files() if case(path) == "rtx-4090-d")
    with pytest.raises(RenderError, match="make images push REGISTRY="):
        template(values, options=["--set", "image.repository="], helm=tool("helm3"))


@pytest.mark.parametrize("values", values_files(), ids=case)
def test_every_pod_is_allowed_where_restricted_is_enforced(values: Path) -> None:
    rendered = (GOLDEN / f"{case(values)}.yaml").read_text("utf-8")
    done = subprocess.run(
        [tool("psalint"), "restricted"], input=rendered, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_judge_refuses_a_pod_that_is_not() -> None:
    values = next(path for path in values_files() if case(path) == "cpu-trial")
    rendered = template(values).replace("runAsNonRoot: true", "runAsNonRoot: false")
    done = subprocess.run(
        [tool("psalint"), "restricted"], input=rendered, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "runAsNonRoot" in done.stdout
