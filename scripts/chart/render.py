"""Render the chart with Helm 4, and read what came out."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from scripts.chart.tools import tool

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "hunyuan-ocr"
RELEASE = "hunyuan-ocr"
OLDEST_KUBERNETES = "1.29.0"
# What a case needs besides; every other one must do with the oldest.
NEWER_KUBERNETES = {"signals": "1.30.0"}

# Kinds that an operator adds to Kubernetes; scripts/chart/definitions.py has their schemas.
CUSTOM_KINDS = ("ScaledObject", "PodMonitor", "PrometheusRule")

Manifest = dict[str, Any]


class RenderError(Exception):
    """Helm refused the values; the message is what it said."""


def values_files() -> list[Path]:
    """The combinations that the chart is known to work with: charts/hunyuan-ocr/ci."""
    return sorted((CHART / "ci").glob("*-values.yaml"))


def case(values: Path) -> str:
    return values.name.removesuffix("-values.yaml")


def oldest_kubernetes(name: str) -> str:
    """The oldest release that a `ci` case works with."""
    return NEWER_KUBERNETES.get(name, OLDEST_KUBERNETES)


def template(*values: Path, options: Sequence[str] = (), helm: Path | None = None) -> str:
    """`helm template` in namespace `ocr`, by Helm 4 unless another is given, for the oldest
    Kubernetes that the first file allows. Raises RenderError.
    """
    files = [part for path in values for part in ("--values", str(path))]
    target = ["--namespace", "ocr", "--kube-version", oldest_kubernetes(case(values[0]))]
    done = subprocess.run(
        [helm or tool("helm"), "template", RELEASE, CHART, *target, *files, *options],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RenderError(done.stderr)
    return done.stdout


def manifests(text: str) -> list[Manifest]:
    return [document for document in yaml.safe_load_all(text) if document]


def only(documents: list[Manifest], kind: str) -> Manifest:
    """The one object of that kind."""
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def pod_specs(documents: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Every pod that the manifests make, as `Kind/name` and its spec."""
    for document in documents:
        if document["kind"] in ("Deployment", "Job"):
            spec = document["spec"]["template"]["spec"]
        elif document["kind"] == "Pod":
            spec = document["spec"]
        else:
            continue
        yield f"{document['kind']}/{document['metadata']['name']}", spec


def containers(spec: Manifest) -> dict[str, Manifest]:
    """All containers of a pod by name, init containers included."""
    return {c["name"]: c for c in (*spec.get("initContainers", ()), *spec["containers"])}
