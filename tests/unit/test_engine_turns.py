"""What a page's turns at the engine teach, before an engine that answers as it is told."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from random import Random
from typing import cast

import pytest

from hunyuan_ocr.documents.document import ImageEncoding, PreparedImage
from hunyuan_ocr.engine_turns import EngineTurns
from hunyuan_ocr.engines.base import (
    Capabilities,
    Engine,
    EngineEvent,
    EngineRequest,
    Finished,
    FinishReason,
    TextDelta,
    TokenUsage,
)
from hunyuan_ocr.errors import EngineUnavailable, Unavailable
from hunyuan_ocr.recognise import Recognition
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.tasks.prompts import TaskRequest
from hunyuan_ocr.telemetry.metrics import Metrics
from hunyuan_ocr.telemetry.usage import RequestUsage
from hunyuan_ocr.traffic.breaker_states import BreakerOptions
from hunyuan_ocr.traffic.engine_guard import EngineGuard
from hunyuan_ocr.traffic.latency_trip import LatencyOptions, LatencyTrip
from hunyuan_ocr.traffic.thermal import ThermalPolicy, ThermalProfile
from tests.unit.admission_site import Site

IMAGE = PreparedImage(b"x", "image/png", 64, 64)


class Scripted:
    """An engine whose answers end as `ends` says, one after the other."""

    capabilities = Capabilities(
        engine="e",
        model="m",
        tasks=frozenset(Task),
        encoding=ImageEncoding.PNG,
        min_pixels=1024,
        max_pixels=dict.fromkeys(("low", "auto", "high"), 1 << 20),
        max_output_tokens=100,
        concurrency=4,
    )

    def __init__(self, site: Site) -> None:
        self._site = site
        self.ends: list[FinishReason] = []
        self.down: Unavailable | None = None

    def refusal(self) -> Unavailable | None:
        return self.down

    async def stream(self, _: EngineRequest) -> AsyncGenerator[EngineEvent]:
        self._site.now += 1.0
        yield TextDelta("text")
        yield Finished(self.ends.pop(0), TokenUsage(10, 100))


def turns_of(site: Site, engine: Scripted, metrics: Metrics) -> tuple[EngineTurns, EngineGuard]:
    guard = EngineGuard(
        BreakerOptions(),
        LatencyTrip(LatencyOptions()),
        ThermalPolicy(ThermalProfile()),
        site.control,
        clock=site.clock,
        rng=Random(1),
    )
    ratio = metrics.pages.service_ratio
    return EngineTurns(cast(Engine, engine), site.control, guard, ratio), guard


async def test_a_page_that_waited_hears_that_the_engine_is_down_and_not_of_the_breaker() -> None:
    site, metrics = Site(), Metrics("test")
    engine = Scripted(site)
    turns, guard = turns_of(site, engine, metrics)
    usage = RequestUsage(metrics.pages)
    async with (
        site.control.admit(site.asked()) as (ticket,),
        site.control.turn(ticket),
        site.control.engine(ticket),
    ):
        engine.down = EngineUnavailable("it is gone")
        guard.open("its answers broke off")
        with pytest.raises(EngineUnavailable):
            await turns.read(ticket, usage, TaskRequest(task=Task.TEXT), "r", IMAGE, None)


async def test_what_is_read_twice_says_nothing_of_the_engine() -> None:
    site, metrics = Site(), Metrics("test")
    engine = Scripted(site)
    turns, guard = turns_of(site, engine, metrics)
    usage = RequestUsage(metrics.pages)

    async def read(*ends: FinishReason) -> Recognition:
        engine.ends = list(ends)
        async with (
            site.control.admit(site.asked()) as (ticket,),
            site.control.turn(ticket),
            site.control.engine(ticket),
        ):
            return await turns.read(ticket, usage, TaskRequest(task=Task.TEXT), "r", IMAGE, None)

    def measured() -> float | None:
        return metrics.registry.get_sample_value("hunyuan_ocr_service_ratio_count")

    assert (await read("stop")).attempts == 1
    assert measured() == 1
    price = site.control.price("text", 100, 400)
    for _ in range(20):
        assert (await read("repetition", "stop")).attempts == 2
    assert measured() == 1
    assert site.control.price("text", 100, 400) == price
    assert guard.state.reason is None
    # Every answer is counted all the same, and every time that another was asked for.
    assert usage.record()["output_tokens"] == 41 * 100
    retried = {"reason": "repetition"}
    assert metrics.registry.get_sample_value("hunyuan_ocr_engine_retries_total", retried) == 20
