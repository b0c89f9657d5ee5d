"""The chart without Helm: a kustomize base and overlays, rendered from it.

The base is the chart as it comes, for a 4090 D. An overlay is the base with the pod that the chart
makes of that overlay's values; images, the model's commit and the namespace are set in its
kustomization.yaml. An example adds the objects that scale the overlay for a 4090 D.
"""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path

import yaml

from scripts.chart.render import CHART, ROOT, Manifest, manifests, only, template

TARGET = ROOT / "k8s"
HEADER = "# Generated from charts/hunyuan-ocr; change that and run `make format`.\n"

IMAGE = "hunyuan-ocr"
NO_REVISION = "0" * 40
COMMON = {"image": {"repository": IMAGE, "tag": "set-in-kustomization"}}
PINNED: Manifest = {"model": {"revision": NO_REVISION}}
OVERLAYS = {"rtx-4090-d": None, "time-sliced": "time-sliced", "cpu-trial": "cpu-trial"}
# An example's values, and the objects of the chart that it holds.
MONITORED: Manifest = {
    "podMonitor": {"enabled": True},
    "networkPolicy": {
        "monitoring": [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
        ]
    },
}
PROMETHEUS = "http://prometheus-operated.monitoring:9090"
EXAMPLES: dict[str, tuple[Manifest, tuple[str, ...]]] = {
    "keda": (
        {"autoscaling": {"mode": "keda", "prometheus": {"address": PROMETHEUS}}, **MONITORED},
        ("ScaledObject", "PodMonitor", "NetworkPolicy"),
    ),
    "prometheus-adapter": (
        {"autoscaling": {"mode": "hpa"}, **MONITORED},
        ("HorizontalPodAutoscaler", "PodMonitor", "NetworkPolicy"),
    ),
}
HELM_ONLY = ("helm.sh/chart", "app.kubernetes.io/managed-by")


def files() -> dict[Path, str]:
    """Every file of k8s/ that is generated, by path."""
    base = [_without_helm(document) for document in _render("rtx-4090-d")]
    found = {TARGET / "base" / f"{d['kind'].lower()}.yaml": _dump(d) for d in base}
    resources = sorted(path.name for path in found)
    found[TARGET / "base" / "kustomization.yaml"] = _dump(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": resources,
        }
    )
    for overlay, case in OVERLAYS.items():
        if case:
            found |= _overlay(TARGET / "overlays" / overlay, case, base)
    for example, (changes, kinds) in EXAMPLES.items():
        for document in _render("rtx-4090-d", changes):
            if document["kind"] in kinds:
                path = TARGET / "examples" / example / f"{document['kind'].lower()}.yaml"
                found[path] = _dump(_without_helm(document))
    return found


def _render(case: str, changes: Manifest | None = None) -> list[Manifest]:
    """The chart's objects for one of its `ci` files, with names to be set by kustomize."""
    values = yaml.safe_load((CHART / "ci" / f"{case}-values.yaml").read_text("utf-8"))
    values |= changes or {}
    values["image"] = COMMON["image"]
    if "revision" in values["model"]:
        values["model"]["revision"] = NO_REVISION
    if "image" in values.get("engine", {}):
        values["engine"]["image"] = {
            "repository": f"{IMAGE}-engine-cpu",
            "tag": "set-in-kustomization",
        }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        return manifests(template(Path(file.name), options=["--no-hooks"]))


def _without_helm(document: Manifest) -> Manifest:
    document = copy.deepcopy(document)
    document["metadata"].pop("namespace")
    for label in HELM_ONLY:
        document["metadata"]["labels"].pop(label)
    return document


def _overlay(folder: Path, case: str, base: list[Manifest]) -> dict[Path, str]:
    """The pod of an overlay, and who reaches it and what it reaches where that differs."""
    documents = [_without_helm(document) for document in _render(case)]
    found = {folder / "deployment.yaml": _dump(_patch(only(documents, "Deployment")))}
    policy = only(documents, "NetworkPolicy")
    if policy != only(base, "NetworkPolicy"):
        found[folder / "networkpolicy.yaml"] = _dump(policy)
    return found


def _patch(deployment: Manifest) -> Manifest:
    """Replaces the whole pod: merging argument lists is not what anybody expects."""
    spec = deployment["spec"]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": deployment["metadata"]["name"]},
        "spec": {
            "replicas": spec["replicas"],
            "progressDeadlineSeconds": spec["progressDeadlineSeconds"],
            "template": {"spec": {"$patch": "replace"} | spec["template"]["spec"]},
        },
    }


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, and lists set in."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _dump(document: Manifest) -> str:
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
    return HEADER + text
