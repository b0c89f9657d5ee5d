"""The metrics that dashboards and alerts are made from: names, labels, and zeros from the start."""

from __future__ import annotations

import math
import re
from itertools import product

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from starlette.types import Receive, Scope, Send

from hunyuan_ocr.app import Service, build
from hunyuan_ocr.errors import error_classes
from hunyuan_ocr.gpu.reading import GpuDevice, GpuReading, SensorState
from hunyuan_ocr.settings import Settings
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.telemetry.gpu_metrics import GpuMetrics
from hunyuan_ocr.telemetry.metrics import Metrics
from hunyuan_ocr.traffic.breaker_states import Reason, State
from hunyuan_ocr.traffic.thermal import ThermalProfile
from tests.unit.test_telemetry import serve

OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5"


@pytest.fixture(scope="module")
def service() -> Service:
    """Built and not started."""
    return build(Settings(engine="vllm", slo_interactive_s=1.5))


async def scrape(service: Service, accept: str = "*/*") -> httpx.Response:
    transport = httpx.ASGITransport(service.management)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        return await client.get("/metrics", headers={"Accept": accept})


def value(service: Service, name: str, **labels: str) -> float | None:
    return service.metrics.registry.get_sample_value(f"hunyuan_ocr_{name}", labels)


COUNTED: dict[str, dict[str, tuple[str, ...]]] = {
    "errors_total": {"code": tuple(error.code for error in error_classes())},
    "breaker_transitions_total": {"state": tuple(State), "reason": tuple(Reason)},
    "tokens_total": {"direction": ("prompt", "output")},
    "offered_engine_seconds_total": {"outcome": ("admitted", "queue_full", "deadline_unreachable")},
    "engine_slot_seconds_total": {"kind": ("predicted", "used")},
    "engine_retries_total": {"reason": ("repetition", "figures_only", "schema_retry")},
    "pages_total": {
        "task": tuple(Task),
        "engine": ("vllm",),
        "outcome": ("ok", "deadline_exceeded", "engine_unavailable", "image_corrupt"),
    },
    "finished_pages_total": {
        "task": tuple(Task),
        "reason": ("stop", "length", "repetition", "blank"),
    },
}


@pytest.mark.parametrize("name", COUNTED)
async def test_what_alerts_count_is_zero_before_it_happens(service: Service, name: str) -> None:
    labels = COUNTED[name]
    for values in product(*labels.values()):
        assert value(service, name, **dict(zip(labels, map(str, values), strict=True))) == 0


async def test_gauges_say_how_the_service_is(service: Service) -> None:
    assert value(service, "ready") == 0  # its engine was not even looked for
    assert value(service, "draining") == 0
    assert value(service, "engine_dead_seconds") == 0
    assert value(service, "slo_interactive_seconds", le="1.5") == 1.5
    text = (await scrape(service)).text
    assert re.search(r"^process_resident_memory_bytes [1-9]", text, re.MULTILINE)
    service.drainer.begin(propagation_s=0.0)
    assert value(service, "draining") == 1


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0"),
        ("*/*", "text/plain; version=0.0.4"),
        ("", "text/plain; version=0.0.4"),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4"),
    ],
)
async def test_prometheus_gets_the_format_it_asks_for(
    service: Service, accept: str, media_type: str
) -> None:
    answer = await scrape(service, accept)
    assert answer.headers["content-type"].startswith(media_type)
    assert answer.text.endswith("# EOF\n") == ("openmetrics" in media_type)


async def answer_nothing(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.mark.parametrize("sampled", [True, False])
async def test_a_request_whose_trace_is_recorded_is_an_exemplar(sampled: bool) -> None:
    service = build(Settings())
    flags = b"01" if sampled else b"00"
    await serve(answer_nothing, service.metrics, TracerProvider(shutdown_on_exit=False), flags)
    text = (await scrape(service, OPENMETRICS)).text
    found = [
        sample.exemplar.labels
        for family in text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
        for sample in family.samples
        if sample.name == "hunyuan_ocr_request_duration_seconds_bucket" and sample.exemplar
    ]
    assert found == ([{"trace_id": "1" * 32}] if sampled else [])
    assert "# {" not in (await scrape(service)).text


@pytest.mark.parametrize(("slo_s", "bound"), [(2, "2.0"), (1.5, "1.5"), (120, "120.0")])
async def test_the_objective_is_a_boundary_of_what_callers_wait(slo_s: float, bound: str) -> None:
    metrics = Metrics("test", slo_s)
    await serve(answer_nothing, metrics, TracerProvider(shutdown_on_exit=False))
    labels = {"route": "/ocr", "method": "POST", "status": "204", "class": "none"}

    def at_most(le: str) -> float | None:
        name = "hunyuan_ocr_request_duration_seconds_bucket"
        return metrics.registry.get_sample_value(name, labels | {"le": le})

    assert at_most(bound) == at_most("120.0") == 1


def test_the_cards_thresholds_are_those_of_the_card_that_is_nearest() -> None:
    registry = CollectorRegistry()
    shown = GpuMetrics(registry, ThermalProfile(open_within_c=1, derate_within_c=3))
    near = GpuDevice(index=1, uuid=None, name=None, temperature_c=70, slowdown_in_c=15)
    far = GpuDevice(index=0, uuid=None, name=None, temperature_c=75, slowdown_in_c=20)
    reading = GpuReading(
        age_s=0, state=SensorState.OK, detail="", temperature_c=75, devices=(near, far)
    )
    unknown = GpuReading(age_s=0, state=SensorState.OK, detail="")

    def threshold(at: str) -> float | None:
        return registry.get_sample_value("hunyuan_ocr_gpu_threshold_celsius", {"at": at})

    shown.show(reading, 1.0, stale=False)
    assert [threshold(at) for at in ("derate", "open", "slowdown")] == [82, 84, 85]
    shown.show(unknown, 1.0, stale=False)
    assert math.isnan(threshold("slowdown") or 0)
