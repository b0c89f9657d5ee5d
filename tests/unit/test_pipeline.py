"""Documents on their way through admission, breaker and engine, in real time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import cast

from opentelemetry.trace import get_tracer

from hunyuan_ocr.documents.header import Limits
from hunyuan_ocr.documents.prepare import Preparer
from hunyuan_ocr.engines.base import (
    Engine,
    EngineEvent,
    EngineRequest,
    Finished,
    TextDelta,
    TokenUsage,
)
from hunyuan_ocr.errors import BreakerOpen
from hunyuan_ocr.pipeline import Pipeline, PipelineLimits
from hunyuan_ocr.reading import PageResult, ReadRequest
from hunyuan_ocr.settings import Settings
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.tasks.prompts import TaskRequest
from hunyuan_ocr.telemetry.metrics import Metrics
from hunyuan_ocr.telemetry.stages import StageRecorder
from hunyuan_ocr.traffic.breaker_states import BreakerOptions, State
from hunyuan_ocr.traffic.drain import Drain
from hunyuan_ocr.traffic.engine_guard import EngineGuard
from hunyuan_ocr.traffic.latency_trip import LatencyOptions, LatencyTrip
from hunyuan_ocr.traffic.ratelimit import RateLimiter
from hunyuan_ocr.traffic.thermal import ThermalPolicy, ThermalProfile
from hunyuan_ocr.traffic_wiring import build_admission_control, quotas
from tests.files import tiff_pages
from tests.pictures import picture
from tests.unit.test_engine_turns import Scripted

PAGE_S = 0.5
COOL_DOWN_S = 0.3


class Clock:
    """An engine that takes `PAGE_S` for any page."""

    capabilities = Scripted.capabilities

    def refusal(self) -> None:
        """It always serves."""

    async def stream(self, _: EngineRequest) -> AsyncGenerator[EngineEvent]:
        await asyncio.sleep(PAGE_S)
        yield TextDelta("text")
        yield Finished("stop", TokenUsage(10, 100))


class Desk:
    """A pipeline, and the parts of it that tests look at."""

    def __init__(self, preparer: Preparer, folder: Path) -> None:
        settings = Settings(engine="vllm", quota_cost_per_s=0.001, quota_cost_burst=1000)
        self.limiter = RateLimiter(quotas(settings), None, clock=time.monotonic, rng=Random(1))
        control = build_admission_control(settings, self.limiter, lambda *_: None)
        self.guard = EngineGuard(
            BreakerOptions(cool_down_s=COOL_DOWN_S),
            LatencyTrip(LatencyOptions()),
            ThermalPolicy(ThermalProfile()),
            control,
            clock=time.monotonic,
            rng=Random(1),
        )
        self._metrics = Metrics("test")
        self._pipeline = Pipeline(
            engine=cast(Engine, Clock()),
            preparer=preparer,
            control=control,
            guard=self.guard,
            limits=PipelineLimits(
                Limits(64, 2000, 200), max_pages=500, pages_at_once=20, pdf_dpi=200, max_tiles=12
            ),
            metrics=self._metrics,
            drain=Drain(time.monotonic),
            spool_directory=folder,
        )

    async def read(self, document: bytes) -> list[PageResult]:
        request = ReadRequest(
            data=document,
            task=TaskRequest(task=Task.TEXT),
            request_id="r",
            tenant="t",
            arrived_at=asyncio.get_running_loop().time(),
        )
        stages = StageRecorder(self._metrics, get_tracer("test"), time.monotonic)
        async with self._pipeline.open(request, stages) as reading:
            return [result async for result in reading.results]

    def state(self) -> State:
        return self.guard.state.state

    def owed(self) -> float:
        """Slot seconds of the caller's quota that are used."""
        return self.limiter.debt("t").cost_s * 0.001


@asynccontextmanager
async def desk(folder: Path) -> AsyncIterator[Desk]:
    preparer = Preparer(workers=1)
    preparer.start()
    try:
        yield Desk(preparer, folder)
    finally:
        await preparer.close()


def document(pages: int) -> bytes:
    return tiff_pages([picture()[0]] * pages)


async def test_half_open_a_document_waits_for_the_pages_that_are_tried(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        here.guard.watch("dead", "gone", None)
        await asyncio.sleep(COOL_DOWN_S)
        here.guard.watch(None, "", None)
        assert here.state() == State.HALF_OPEN
        results = await here.read(document(12))
    assert [result.error for result in results] == [None] * 12
    assert here.state() == State.CLOSED


async def test_pages_that_were_not_read_use_up_no_quota(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        await here.read(document(12))
        each = here.owed() / 12
        assert each > 0.01
        reading = asyncio.create_task(here.read(document(60)))
        await asyncio.sleep(0.3)
        here.guard.open("maintenance")
        results = await reading
    read = sum(result.error is None for result in results)
    assert read < 50
    assert sum(isinstance(result.error, BreakerOpen) for result in results) == 60 - read
    assert here.owed() < each * (12 + read) * 1.2 + 0.1
