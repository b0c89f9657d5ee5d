"""The chart as Helm 3 renders it, and as kubeconform and the API server's own code judge it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import kubernetes_validate
import pytest

from scripts.chart.generate import GOLDEN
from scripts.chart.render import (
    CUSTOM_KINDS,
    OLDEST_KUBERNETES,
    RenderError,
    case,
    manifests,
    oldest_kubernetes,
    template,
    values_files,
)
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


@pytest.fixture(scope="module")
def schemas_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Schemas of a Kubernetes release, made so that kubeconform finds each by its own path."""
    return cache(lambda version: _schemas(version, tmp_path_factory.mktemp("schemas")))


def _schemas(version: str, folder: Path) -> str:
    package = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    for source in (package / f"v{version}-local-strict").glob("*.json"):
        schema = json.loads(source.read_text("utf-8"))
        schema.pop("$id", None)
        text = json.dumps(schema).replace('"/api/_definitions.json#', '"_definitions.json#')
        (folder / source.name).write_text(text, "utf-8")
    return f"{folder}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"


def kubeconform(rendered: str, schemas: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            tool("kubeconform"), "-strict", "-skip", ",".join(CUSTOM_KINDS),
            "-schema-location", schemas, "-",
        ],
        input=rendered,
        capture_output=True,
        text=True,
    )  # fmt: skip


@pytest.mark.parametrize("values", values_files(), ids=case)
def test_kubeconform_finds_nothing(values: Path, schemas_of: Callable[[str], str]) -> None:
    schemas = schemas_of(oldest_kubernetes(case(values)))
    done = kubeconform((GOLDEN / f"{case(values)}.yaml").read_text("utf-8"), schemas)
    assert done.returncode == 0, done.stdout + done.stderr


def test_kubeconform_finds_a_field_that_does_not_exist(
    schemas_of: Callable[[str], str],
) -> None:
    rendered = (GOLDEN / "cpu-trial.yaml").read_text("utf-8")
    schemas = schemas_of(OLDEST_KUBERNETES)
    done = kubeconform(rendered.replace("periodSeconds:", "periodSecond:"), schemas)
    assert done.returncode == 1
    assert "periodSecond" in done.stdout


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
