"""Finds out how fast an engine is, by reading pages of several sizes alone and together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import aclosing

from hunyuan_ocr.documents.document import PreparedImage
from hunyuan_ocr.engine_work import work_of
from hunyuan_ocr.engines.base import Capabilities, EngineRequest, Finished, Read
from hunyuan_ocr.engines.isolation import ALPHABET, CODE_LENGTH, CodedPage, draw
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.tasks.prompts import TaskRequest, build_prompt
from hunyuan_ocr.traffic.admission_control import AdmissionControl
from hunyuan_ocr.traffic.cost import Sample, Work

# Width in pixels and lines of text; the largest has 0.86 megapixels. The first two tell apart what
# each page takes and what its size adds, the others make it surer.
_PAGES = ((256, 2), (960, 22), (448, 6), (640, 12))
_OUTPUT_TOKENS_MAX = 64
_TOGETHER_MAX = 8
# On a slow machine the first pages must do: nobody is served meanwhile.
_LIMIT_S = 2.0


class Calibrator:
    """Hears of engine processes not met before, and tells admission control how fast they are."""

    def __init__(
        self, control: AdmissionControl, rng: random.Random, clock: Callable[[], float]
    ) -> None:
        self._control = control
        self._rng = rng
        self._clock = clock

    def preempted(self) -> None:
        self._control.preempted()

    async def met(self, capabilities: Capabilities, read: Read) -> None:
        """Calibrate for this engine, which nobody else uses yet. Raises what reading raises."""
        pages = await asyncio.to_thread(self._draw, capabilities.max_pixels["auto"])
        began = self._clock()
        samples: list[Sample] = []
        for page in pages:
            if self._clock() - began > _LIMIT_S:
                break
            samples += await self._together([page], capabilities, read)
        else:
            count = min(capabilities.concurrency, _TOGETHER_MAX)
            if count > 1:
                some = [pages[number % len(pages)] for number in range(count)]
                samples += await self._together(some, capabilities, read)
        self._control.recalibrate(samples)

    def _draw(self, max_pixels: int) -> list[CodedPage]:
        pages = []
        for width, lines in _PAGES:
            codes = ["".join(self._rng.choices(ALPHABET, k=CODE_LENGTH)) for _ in range(lines)]
            pages.append(draw(codes, width, self._rng))
        return [page for page in pages if page.width * page.height <= max_pixels] or pages[:1]

    async def _together(
        self, pages: Sequence[CodedPage], capabilities: Capabilities, read: Read
    ) -> list[Sample]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._read(p, capabilities, read)) for p in pages]
        except BaseExceptionGroup as failures:  # the others are cancelled by now
            raise failures.exceptions[0] from None
        spans = [task.result() for task in tasks]
        return [
            Sample(work, _mean_load(span, [other for _, other in spans]), span[1] - span[0])
            for work, span in spans
        ]

    async def _read(
        self, page: CodedPage, capabilities: Capabilities, read: Read
    ) -> tuple[Work, tuple[float, float]]:
        """What one page took, and from when to when it was read."""
        request = EngineRequest(
            image=PreparedImage(page.image, "image/png", page.width, page.height),
            task=Task.TEXT,
            prompt=build_prompt(TaskRequest(task=Task.TEXT), capabilities.generation),
            max_output_tokens=_OUTPUT_TOKENS_MAX,
            request_id=f"calibration-{self._rng.getrandbits(64):016x}",
        )
        began, tokens = self._clock(), 0
        async with aclosing(read(request)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    tokens = event.usage.output
        work = work_of(capabilities, page.width, page.height, tokens)
        return work, (began, self._clock())


def _mean_load(span: tuple[float, float], every: Sequence[tuple[float, float]]) -> float:
    """Pages that were read beside one, in the mean over its time; `every` has the page itself."""
    began, ended = span
    shared_s = sum(max(0.0, min(ended, end) - max(began, begin)) for begin, end in every)
    return shared_s / (ended - began) - 1 if ended > began else 0.0
