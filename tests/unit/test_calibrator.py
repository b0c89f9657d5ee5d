"""Finding out how fast an engine is, with a clock that an engine of known law moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from random import Random
from typing import cast

import pytest

from hunyuan_ocr.calibrator import Calibrator
from hunyuan_ocr.documents.document import ImageEncoding
from hunyuan_ocr.engines.base import (
    Capabilities,
    EngineEvent,
    EngineRequest,
    Finished,
    TokenUsage,
)
from hunyuan_ocr.engines.visual_tokens import PixelBounds
from hunyuan_ocr.errors import EngineUnavailable
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.traffic.admission_control import AdmissionControl
from hunyuan_ocr.traffic.calibration import PRIOR, calibrated
from hunyuan_ocr.traffic.cost import Sample, Work

BOUNDS = PixelBounds(512 * 512, 1 << 20)
CAPABILITIES = Capabilities(
    engine="e",
    model="m",
    tasks=frozenset(Task),
    encoding=ImageEncoding.PNG,
    min_pixels=BOUNDS.min_pixels,
    max_pixels=dict.fromkeys(("low", "auto", "high"), BOUNDS.max_pixels),
    max_output_tokens=100,
    concurrency=4,
)


class Engine:
    """Takes as long as `PRIOR` three times over, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.requests: list[EngineRequest] = []
        self.samples: list[Sample] = []

    def clock(self) -> float:
        return self.now

    def recalibrate(self, samples: Sequence[Sample]) -> None:
        self.samples = list(samples)

    async def read(self, request: EngineRequest) -> AsyncGenerator[EngineEvent]:
        self.requests.append(request)
        size = request.image.width, request.image.height
        work = Work(BOUNDS.tokens(*size), BOUNDS.patches(*size), 40)
        end = self.now + 3 * PRIOR.alone_s(work)
        for _ in range(10):  # the others of a batch begin meanwhile
            await asyncio.sleep(0)
        self.now = max(self.now, end)
        yield Finished("stop", TokenUsage(100, 40))


async def test_pages_of_several_sizes_tell_the_speed() -> None:
    engine = Engine()
    calibrator = Calibrator(cast(AdmissionControl, engine), Random(1), engine.clock)
    await calibrator.met(CAPABILITIES, engine.read)
    sizes = {(r.image.width, r.image.height) for r in engine.requests}
    assert len(sizes) == 4
    assert all(width * height <= CAPABILITIES.max_pixels["auto"] for width, height in sizes)
    assert sum(sample.load_slots > 1 for sample in engine.samples) >= 2
    alone = [sample for sample in engine.samples if sample.load_slots < 0.5]
    speed = calibrated(PRIOR, alone)
    work = Work(1000, 4000, 200)
    assert speed.alone_s(work) == pytest.approx(3 * PRIOR.alone_s(work), rel=0.1)


async def test_a_slow_engine_is_not_kept_from_its_callers_for_long() -> None:
    engine = Engine()
    calibrator = Calibrator(cast(AdmissionControl, engine), Random(1), engine.clock)

    async def slowly(request: EngineRequest) -> AsyncGenerator[EngineEvent]:
        engine.requests.append(request)
        await asyncio.sleep(0)
        engine.now += 20
        yield Finished("stop")

    await calibrator.met(CAPABILITIES, slowly)
    assert len(engine.requests) == 1
    assert len(engine.samples) == 1


async def test_an_engine_that_fails_is_not_calibrated() -> None:
    engine = Engine()
    calibrator = Calibrator(cast(AdmissionControl, engine), Random(1), engine.clock)

    async def broken(request: EngineRequest) -> AsyncGenerator[EngineEvent]:
        if request.request_id.startswith("calibration-"):
            raise EngineUnavailable
        yield Finished("stop")

    with pytest.raises(EngineUnavailable):
        await calibrator.met(CAPABILITIES, broken)
    assert not engine.samples
