"""The way of a page, from the bytes a caller sent to the lines of its text.

Every route and the command line walk this one path; each step takes a value and returns one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hunyuan_ocr.concurrency import as_they_finish
from hunyuan_ocr.documents.document import (
    Document,
    DocumentInfo,
    PreparedPage,
    PrepareOptions,
)
from hunyuan_ocr.documents.geometry import clamp
from hunyuan_ocr.documents.header import Limits
from hunyuan_ocr.documents.pages import parse_pages
from hunyuan_ocr.documents.prepare import Preparer, spooled
from hunyuan_ocr.documents.sniff import sniff
from hunyuan_ocr.engines.base import Engine, Line, TokenUsage
from hunyuan_ocr.errors import (
    DeadlineExceeded,
    OcrError,
    QueueFull,
    TaskUnsupported,
)
from hunyuan_ocr.reading import PageLine, PageResult, Reading, ReadRequest
from hunyuan_ocr.recognise import Recognition, recognise
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.tasks.prompts import TaskRequest, build_prompt
from hunyuan_ocr.telemetry.metrics import Metrics
from hunyuan_ocr.telemetry.stages import Stage, StageRecorder
from hunyuan_ocr.traffic.drain import Drain
from hunyuan_ocr.traffic.slots import Slots

# A page shown to the model below half its size may lose small print: callers are told.
DOWNSCALED_BELOW = 0.5


@dataclass(frozen=True, slots=True)
class PipelineLimits:
    """What one request may ask for; `pages_ahead` are prepared while others are in the engine."""

    document: Limits
    max_pages: int
    max_waiting_pages: int
    pages_ahead: int
    pdf_dpi: int


class Pipeline:
    """Owns the order of the steps; the work is done by what it is given."""

    def __init__(
        self,
        *,
        engine: Engine,
        preparer: Preparer,
        limits: PipelineLimits,
        metrics: Metrics,
        drain: Drain,
        spool_directory: Path,
    ) -> None:
        self._engine = engine
        self._preparer = preparer
        self._limits = limits
        self._metrics = metrics
        self._drain = drain
        self._spool_directory = spool_directory
        concurrency = engine.capabilities.concurrency
        self._pages_at_once = concurrency + limits.pages_ahead
        self._page_slots = Slots(self._pages_at_once)
        self._engine_slots = Slots(concurrency)
        metrics.pages_waiting.set_function(lambda: self._page_slots.waiting)
        metrics.pages_in_flight.set_function(lambda: self._engine_slots.held)

    @property
    def pages_begun(self) -> int:
        """Pages being prepared, or waiting for the engine or in it."""
        return self._page_slots.held

    @asynccontextmanager
    async def open(self, request: ReadRequest, stages: StageRecorder) -> AsyncIterator[Reading]:
        """Admit a document and start reading it; leaving the block stops what is unfinished.

        Raises the OcrError of whatever refuses the document as a whole. A page's own error is
        an item of `results`.
        """
        self._admit(request.task)
        document = Document(sniff(request.data), request.data, password=request.password)
        async with spooled(document, self._spool_directory) as document:
            with stages.stage(Stage.INSPECT):
                info = await self._inspect(document, request)
            selected = parse_pages(request.pages, len(info.pages), self._limits.max_pages)
            reading = Reading(len(info.pages), selected, info.cut_off)
            job = partial(self._page, document, request, stages, reading)
            jobs = (partial(job, index) for index in selected)
            async with aclosing(as_they_finish(jobs, self._pages_at_once)) as reading.results:
                yield reading

    @asynccontextmanager
    async def turn(self, stages: StageRecorder) -> AsyncIterator[None]:
        """Hold the engine for a request that is passed through without being prepared here."""
        self._check_queue()
        async with (
            self._page_slots.hold(stages.stage(Stage.QUEUE)),
            self._engine_slots.hold(stages.stage(Stage.QUEUE)),
        ):
            with stages.stage(Stage.ENGINE):
                yield

    def count_tokens(self, usage: TokenUsage) -> None:
        self._metrics.tokens.labels("prompt").inc(usage.prompt)
        self._metrics.tokens.labels("output").inc(usage.output)

    def _check_queue(self) -> None:
        if refusal := self._engine.refusal():
            raise refusal.for_caller()
        if self._page_slots.waiting >= self._limits.max_waiting_pages:
            raise QueueFull(f"{self._page_slots.waiting} pages are waiting", retry_after_s=2.0)

    def _admit(self, task: TaskRequest) -> None:
        capabilities = self._engine.capabilities
        if task.task not in capabilities.tasks:
            raise TaskUnsupported(f"the {capabilities.engine} engine does not do {task.task!s}")
        if task.has_words and not capabilities.prompted:
            raise TaskUnsupported(f"the {capabilities.engine} engine follows no instruction")
        build_prompt(task, capabilities.generation)  # refuses a task that asks for nothing
        self._check_queue()

    async def _inspect(self, document: Document, request: ReadRequest) -> DocumentInfo:
        try:
            async with asyncio.timeout_at(request.deadline):
                return await self._preparer.inspect(document, self._limits.document)
        except TimeoutError:
            raise DeadlineExceeded("the document was not opened within its time") from None

    async def _page(
        self,
        document: Document,
        request: ReadRequest,
        stages: StageRecorder,
        reading: Reading,
        index: int,
    ) -> PageResult:
        try:
            async with asyncio.timeout_at(request.deadline):
                result = await self._read(document, index, request, stages, reading)
        except TimeoutError:
            result = self._failed(index, DeadlineExceeded())
        except OcrError as error:
            result = self._failed(index, error)
        self._count(request.task.task, result)
        return result

    async def _read(
        self,
        document: Document,
        index: int,
        request: ReadRequest,
        stages: StageRecorder,
        reading: Reading,
    ) -> PageResult:
        """Prepare the page while others hold the engine, read it, map its boxes back."""
        async with AsyncExitStack() as turn, AsyncExitStack() as slot:
            with stages.stage(Stage.QUEUE):
                await turn.enter_async_context(self._preparer.turn(document))
            await slot.enter_async_context(self._page_slots.hold(stages.stage(Stage.QUEUE)))
            if len(reading.selected) > 1:  # a single page is all of a request in flight
                self._drain.check()
            with stages.stage(Stage.PREPARE):
                page = await self._preparer.prepare(document, index, self._prepare_options())
            await turn.aclose()
            async with self._engine_slots.hold(stages.stage(Stage.QUEUE)):
                with stages.stage(Stage.ENGINE):
                    recognition = await recognise(
                        self._engine,
                        page.image,
                        request.task,
                        generation=self._engine.capabilities.generation,
                        request_id=f"{request.request_id}-{index}",
                        max_output_tokens=self._engine.capabilities.max_output_tokens,
                        on_text=partial(reading.on_text, index) if reading.on_text else None,
                    )
        return self._result(index, page, recognition)

    def _prepare_options(self) -> PrepareOptions:
        capabilities = self._engine.capabilities
        return PrepareOptions(
            max_pixels=capabilities.max_pixels,
            min_pixels=capabilities.min_pixels,
            encoding=capabilities.encoding,
            accepts=capabilities.accepts,
            max_source_megapixels=self._limits.document.max_megapixels,
            pdf_dpi=self._limits.pdf_dpi,
        )

    def _result(self, index: int, page: PreparedPage, read: Recognition) -> PageResult:
        scale = min(page.placement.scale_x, page.placement.scale_y)
        shrunk = ("downscaled",) if scale < DOWNSCALED_BELOW else ()
        return PageResult(
            index=index,
            status="ok",
            engine=self._engine.capabilities.engine,
            text=read.text,
            lines=tuple(_in_source(line, page) for line in read.lines),
            value=read.value,
            width=page.source.width,
            height=page.source.height,
            scale=round(scale, 4),
            rotation_applied=page.rotation_applied,
            blank=page.blank,
            finish_reason=read.finish_reason,
            warnings=(*read.warnings, *shrunk),
            usage=read.usage,
        )

    def _failed(self, index: int, error: OcrError) -> PageResult:
        return PageResult(
            index=index, status="error", engine=self._engine.capabilities.engine, error=error
        )

    def _count(self, task: Task, result: PageResult) -> None:
        outcome = result.error.code if result.error else "ok"
        if result.error:
            self._metrics.refused.labels(outcome).inc()
        self._metrics.pages.labels(task, result.engine, outcome).inc()
        self._metrics.megapixels.inc(result.width * result.height / 1e6)
        self.count_tokens(result.usage)


def _in_source(line: Line, page: PreparedPage) -> PageLine:
    mapped = (page.placement.to_source(point) for point in line.polygon)
    polygon = clamp(mapped, page.source.width, page.source.height)
    return PageLine(line.text, tuple((round(x, 1), round(y, 1)) for x, y in polygon), line.label)
