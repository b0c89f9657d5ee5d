"""k8s/ makes the same objects as the chart."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from scripts.chart.kustomize import EXAMPLES, HELM_ONLY, TARGET
from scripts.chart.render import CUSTOM_KINDS, Manifest, manifests, only
from scripts.chart.tools import tool
from tests.chart.conftest import Render

OVERLAYS = sorted(path.name for path in (TARGET / "overlays").iterdir())
REVISION = "2f0a9c6d1e5b48377c60d9a4be15f8c23a7e6b90"  # of charts/hunyuan-ocr/ci


def build(folder: Path) -> list[Manifest]:
    done = subprocess.run(
        [tool("kubectl"), "kustomize", folder], capture_output=True, text=True, check=True
    )
    assert not done.stderr  # warnings about old fields
    return manifests(done.stdout)


def is_hook(document: Manifest) -> bool:
    return "helm.sh/hook" in document["metadata"].get("annotations", {})


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_is_what_helm_installs(overlay: str, render: Render, tmp_path: Path) -> None:
    """With the image, the namespace and the commit set as k8s/README.md says."""
    shutil.copytree(TARGET, tmp_path / "k8s")
    folder = tmp_path / "k8s" / "overlays" / overlay
    if (model := folder / "model.yaml").exists():
        model.write_text(model.read_text("utf-8").replace("0" * 40, REVISION), "utf-8")
    built = build(folder)
    expected = [document for document in render(overlay) if not is_hook(document)]
    wanted = {
        "ServiceAccount",
        "Service",
        "Deployment",
        "NetworkPolicy",
        "PodDisruptionBudget",
    }
    assert {document["kind"] for document in built} == wanted
    for document in expected:
        for label in HELM_ONLY:
            document["metadata"]["labels"].pop(label, None)
    by_kind = {document["kind"]: document for document in built}
    for document in expected:
        if document["kind"] in wanted:
            assert by_kind[document["kind"]] == document
    for document in built:
        kubernetes_validate.validate(document, "1.29", strict=True)


def test_the_base_builds_alone() -> None:
    text = yaml.safe_dump_all(build(TARGET / "base"))
    assert "helm" not in text.lower()


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_scales_what_helm_would_scale(example: str, render: Render) -> None:
    changes, kinds = EXAMPLES[example]
    built = build(TARGET / "examples" / example)
    expected = [document for document in render("rtx-4090-d", changes) if not is_hook(document)]
    for kind in kinds:
        assert only(built, kind)["spec"] == only(expected, kind)["spec"]
    assert "replicas" not in only(built, "Deployment")["spec"]
    assert {d["kind"] for d in built} == {d["kind"] for d in expected}
    for document in built:
        if document["kind"] not in CUSTOM_KINDS:
            kubernetes_validate.validate(document, "1.29", strict=True)
