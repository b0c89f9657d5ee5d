"""What the chart makes of every file in ci/: valid, hardened, and as the pod's parts expect."""

from __future__ import annotations

import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from scripts.chart.generate import GOLDEN
from scripts.chart.render import (
    CHART,
    CUSTOM_KINDS,
    ROOT,
    Manifest,
    case,
    containers,
    manifests,
    oldest_kubernetes,
    only,
    pod_specs,
    values_files,
)
from scripts.chart.tools import tool
from scripts.images import images
from tests.chart.conftest import Render

# The newest release whose schemas there are.
NEWEST_KUBERNETES = "1.37"
CASES = [case(path) for path in values_files()]


def golden(name: str) -> list[Manifest]:
    return manifests((GOLDEN / f"{name}.yaml").read_text("utf-8"))


@pytest.mark.parametrize("path", values_files(), ids=case)
def test_lint_finds_nothing(path: Path) -> None:
    done = subprocess.run(
        [tool("helm"), "lint", "--strict", CHART, "--values", path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", CASES)
def test_objects_fit_the_schemas_of_kubernetes(name: str) -> None:
    for version in (oldest_kubernetes(name).removesuffix(".0"), NEWEST_KUBERNETES):
        for document in golden(name):
            if document["kind"] not in CUSTOM_KINDS:
                kubernetes_validate.validate(document, version, strict=True)


def test_an_install_finds_the_images_that_are_pushed() -> None:
    """Without a tag the chart, and k8s/ in its kustomizations, take the version's."""
    made = images.catalogue()
    names = {images.pushed(made[name]) for name in ("hunyuan-ocr", "hunyuan-ocr-slim")}
    wanted = containers(server("rtx-4090-d"))["hunyuan-ocr"]["image"].rpartition("/")[2]
    assert wanted in names
    overlay = yaml.safe_load((ROOT / "k8s/overlays/rtx-4090-d/kustomization.yaml").read_text())
    (given,) = overlay["images"]
    assert f"{given['newName'].rpartition('/')[2]}:{given['newTag']}" == wanted


@pytest.mark.parametrize("name", CASES)
def test_every_container_is_restricted(name: str) -> None:
    for pod, spec in pod_specs(golden(name)):
        assert spec["automountServiceAccountToken"] is False, pod
        assert spec["enableServiceLinks"] is False, pod
        assert spec["securityContext"]["runAsNonRoot"] is True, pod
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, pod
        for container in containers(spec).values():
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert "limits" in container["resources"]
            writable = container["name"] == "vllm" and name != "air-gapped"
            assert security["readOnlyRootFilesystem"] is not writable, container["name"]


@pytest.mark.parametrize("name", CASES)
def test_every_mount_has_its_volume_and_every_volume_its_mount(name: str) -> None:
    for pod, spec in pod_specs(golden(name)):
        mounted = {m["name"] for c in containers(spec).values() for m in c["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["volumes"]}, pod


@pytest.mark.parametrize("name", CASES)
def test_the_service_reaches_the_server_alone(name: str) -> None:
    documents = golden(name)
    service = only(documents, "Service")["spec"]
    deployment = only(documents, "Deployment")["spec"]
    server = containers(deployment["template"]["spec"])["hunyuan-ocr"]
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    assert [port["targetPort"] for port in service["ports"]] == [ports["http"]]
    wanted = service["selector"].items()
    assert wanted <= deployment["template"]["metadata"]["labels"].items()
    assert deployment["selector"]["matchLabels"] == service["selector"]
    for document in documents:
        if document["kind"] in ("Job", "Pod"):
            template = document["spec"].get("template", document)
            assert not wanted <= template["metadata"]["labels"].items()


def server(name: str) -> Manifest:
    spec: Manifest = only(golden(name), "Deployment")["spec"]["template"]["spec"]
    return spec


def mounts(container: Manifest) -> dict[str, str]:
    return {
        m["name"]: m["mountPath"] + (" ro" if m.get("readOnly") else "")
        for m in container["volumeMounts"]
    }


def test_the_sidecar_is_up_before_vllm_and_down_after_it() -> None:
    spec = server("shared-claim")
    assert [c["name"] for c in spec["initContainers"]] == ["engine-code", "model", "hunyuan-ocr"]
    assert [c["name"] for c in spec["containers"]] == ["vllm"]
    assert [c.get("restartPolicy") for c in spec["initContainers"]] == [None, None, "Always"]


def test_volumes_are_written_by_one_and_read_by_others() -> None:
    parts = containers(server("shared-claim"))
    assert mounts(parts["vllm"]) == {
        "code": "/code ro",
        "telemetry": "/telemetry",
        "markers": "/markers ro",
        "cache": "/cache",
        "shm": "/dev/shm",
        "tmp-vllm": "/tmp",
        "model": "/models-cache ro",
    }
    assert mounts(parts["hunyuan-ocr"]) == {
        "control": "/run/hunyuan-ocr",
        "tmp": "/tmp",
        "telemetry": "/telemetry ro",
        "markers": "/markers",
        "keys": "/etc/hunyuan-ocr/keys ro",
    }
    assert mounts(parts["engine-code"]) == {"code": "/code", "tmp": "/tmp"}


def test_vllm_is_probed_through_the_sidecar_and_held_until_drained() -> None:
    vllm = containers(server("rtx-4090-d"))["vllm"]
    assert vllm["command"] == ["python3", "/code/launcher.py", "serve", "--"]
    assert vllm["startupProbe"]["httpGet"] == {"port": 9180, "path": "/engine/startz"}
    assert vllm["livenessProbe"] == {
        "exec": {"command": ["python3", "/code/launcher.py", "livez"]},
        "periodSeconds": 5,
        "timeoutSeconds": 10,
        "failureThreshold": 2,
        "terminationGracePeriodSeconds": 10,
    }
    assert vllm["lifecycle"]["preStop"]["exec"]["command"][-1] == "hold"


def test_everything_that_vllm_writes_lies_on_a_volume() -> None:
    variables = {e["name"]: e["value"] for e in containers(server("rtx-4090-d"))["vllm"]["env"]}
    paths = [value for value in variables.values() if value.startswith("/")]
    assert len(paths) >= 15
    assert all(path.startswith("/cache/") for path in paths)


@pytest.mark.parametrize("name", ["embedded", "cpu-trial", "rtx-4090-d"])
def test_the_grace_is_enough_for_the_longest_request(name: str) -> None:
    spec = server(name)
    variables = {e["name"]: e["value"] for e in containers(spec)["hunyuan-ocr"]["env"]}
    longest = float(variables.get("HYOCR_BATCH_TIMEOUT_S", 600))
    assert spec["terminationGracePeriodSeconds"] >= 10 + longest + 15


def test_the_embedded_engine_needs_the_service_alone() -> None:
    spec = server("embedded")
    assert "initContainers" not in spec
    (container,) = spec["containers"]
    assert container["name"] == "hunyuan-ocr"
    assert "restartPolicy" not in container
    assert {e["name"]: e["value"] for e in container["env"]}["HYOCR_ENGINE"] == "embedded"


def test_a_new_key_restarts_nothing(render: Render) -> None:
    line = "{}:" + "0" * 32 + ":" + "0" * 64
    before = render("cpu-trial", {"keys": {"entries": [line.format("a")]}})
    after = render("cpu-trial", {"keys": {"entries": [line.format("a"), line.format("b")]}})
    assert only(before, "Secret") != only(after, "Secret")
    assert only(before, "Deployment") == only(after, "Deployment")
