"""compose.yaml starts the same parts as the chart's profile for a 4090 D."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from scripts.chart.render import ROOT, Manifest, containers, only
from tests.chart.conftest import Render


@pytest.fixture
def services() -> dict[str, Any]:
    document = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    found: dict[str, Any] = document["services"]
    return found


@pytest.fixture
def pod(render: Render) -> dict[str, Manifest]:
    return containers(only(render("rtx-4090-d"), "Deployment")["spec"]["template"]["spec"])


def environment(container: Manifest) -> dict[str, str]:
    return {e["name"]: e["value"] for e in container["env"]}


def test_vllm_has_the_arguments_and_environment_of_the_chart(
    services: dict[str, Any], pod: dict[str, Manifest]
) -> None:
    chart, compose = pod["vllm"], services["vllm"]
    assert compose["entrypoint"] == chart["command"]
    assert compose["command"][2] == "/model"
    assert [*compose["command"][:2], *compose["command"][3:]] == [
        *chart["args"][:2],
        *chart["args"][3:],
    ]
    assert compose["environment"] == environment(chart)
    assert chart["image"] in compose["image"]


def test_the_service_has_the_settings_of_the_chart(
    services: dict[str, Any], pod: dict[str, Manifest]
) -> None:
    expected = environment(pod["hunyuan-ocr"])
    expected["HYOCR_CONTROL_SOCKET"] = "/tmp/control.sock"  # no volume of its own here
    assert services["hunyuan-ocr"]["environment"] == expected


def test_vllm_is_reached_by_nobody_but_the_service(services: dict[str, Any]) -> None:
    assert services["vllm"]["network_mode"] == "service:pod"
    assert services["hunyuan-ocr"]["network_mode"] == "service:pod"
    published = services["pod"]["ports"]
    assert [port.rpartition(":")[2] for port in published] == ["7860", "9180"]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert not [name for name, service in services.items() if name != "pod" and "ports" in service]


def test_the_service_is_drained_before_vllm_is_stopped(
    services: dict[str, Any], render: Render
) -> None:
    """Compose stops what depends on others first."""
    assert "vllm" in services["hunyuan-ocr"]["depends_on"]
    assert "hunyuan-ocr" not in services["vllm"]["depends_on"]
    spec = only(render("rtx-4090-d"), "Deployment")["spec"]["template"]["spec"]
    grace = f"{spec['terminationGracePeriodSeconds']}s"
    assert services["hunyuan-ocr"]["stop_grace_period"] == grace


def test_every_service_gives_up_its_privileges(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["user"] == "10001:10001", name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service.get("read_only", False) is (name != "vllm"), name
