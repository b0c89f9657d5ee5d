"""The Job that the chart makes: away from the GPUs, restricted, with what it may reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from loadtest.cli import app
from scripts.chart.generate import GOLDEN
from scripts.chart.render import CHART, Manifest, case, manifests, only, template, values_files

CI = CHART / "ci" / "loadtest-values.yaml"
OFF = [case(path) for path in values_files() if path != CI]


def rendered(tmp_path: Path, changes: dict[str, Any]) -> list[Manifest]:
    changed = tmp_path / "changes.yaml"
    changed.write_text(yaml.safe_dump(changes), "utf-8")
    return manifests(template(CI, changed))


def job(documents: list[Manifest]) -> Manifest:
    return only(documents, "Job")


def pod(documents: list[Manifest]) -> Manifest:
    return dict(job(documents)["spec"]["template"]["spec"])


@pytest.mark.parametrize("name", OFF)
def test_it_is_off_unless_asked_for(name: str) -> None:
    for document in manifests((GOLDEN / f"{name}.yaml").read_text("utf-8")):
        assert "loadtest" not in document["metadata"]["name"]


@pytest.mark.parametrize("name", ["my-production-document-recognition-eu", "a" * 47])
def test_its_name_fits_a_label(name: str, tmp_path: Path) -> None:
    (document,) = [
        found for found in rendered(tmp_path, {"fullnameOverride": name}) if found["kind"] == "Job"
    ]
    assert len(document["metadata"]["name"]) <= 63


def test_it_never_takes_a_core_from_a_gpu(tmp_path: Path) -> None:
    spec = pod(
        rendered(tmp_path, {"tolerations": [{"operator": "Exists"}], "runtimeClassName": "x"})
    )
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert {"key": "nvidia.com/gpu.product", "operator": "DoesNotExist"} in term["matchExpressions"]
    assert "tolerations" not in spec
    assert "runtimeClassName" not in spec
    assert "nvidia.com/gpu" not in str(spec["containers"])


def test_its_options_are_those_of_the_command(tmp_path: Path) -> None:
    changes = {"loadtest": {"command": "run", "args": ["--rate=5"]}, "service": {"port": 80}}
    (container,) = pod(rendered(tmp_path, changes))["containers"]
    command, url, *options = container["args"]
    assert (command, url) == ("run", "http://hunyuan-ocr:80")
    known = get_command(app).commands[command].params  # type: ignore[attr-defined]
    names = {name for parameter in known for name in parameter.opts}
    assert {option.partition("=")[0] for option in options} <= names
    assert "--rate=5" in options


def test_other_options_make_another_job(tmp_path: Path) -> None:
    """The spec of a Job cannot change."""
    first = job(rendered(tmp_path, {}))["metadata"]["name"]
    assert job(rendered(tmp_path, {}))["metadata"]["name"] == first
    assert job(rendered(tmp_path, {"loadtest": {"args": ["--to=8"]}}))["metadata"]["name"] != first
    assert len(first) <= 63


def test_it_reaches_the_servers_and_nothing_else(tmp_path: Path) -> None:
    documents = rendered(tmp_path, {})
    (policy,) = (
        document["spec"]
        for document in documents
        if document["kind"] == "NetworkPolicy"
        and document["metadata"]["name"].endswith("-loadtest")
    )
    labels = job(documents)["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert "ingress" not in policy
    _, servers = policy["egress"]
    (to,) = servers["to"]
    server = only(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert to["podSelector"]["matchLabels"].items() <= server.items()
    without = rendered(tmp_path, {"networkPolicy": {"enabled": False}})
    assert not [document for document in without if document["kind"] == "NetworkPolicy"]


def test_it_is_no_pod_of_the_service(tmp_path: Path) -> None:
    """Else the Service would send callers to it."""
    documents = rendered(tmp_path, {})
    selector = only(documents, "Service")["spec"]["selector"]
    labels = job(documents)["spec"]["template"]["metadata"]["labels"]
    assert not selector.items() <= labels.items()
