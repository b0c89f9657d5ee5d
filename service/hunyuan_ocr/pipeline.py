"""The way of a page, from the bytes a caller sent to the lines of its text.

Every route and the command line walk this one path; each step takes a value and returns one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hunyuan_ocr.concurrency import as_they_finish
from hunyuan_ocr.documents.document import (
    Document,
    DocumentInfo,
    PageSize,
    PreparedPage,
    PrepareOptions,
)
from hunyuan_ocr.documents.geometry import clamp
from hunyuan_ocr.documents.header import Limits
from hunyuan_ocr.documents.pages import parse_pages
from hunyuan_ocr.documents.prepare import Preparer, spooled
from hunyuan_ocr.documents.sniff import sniff
from hunyuan_ocr.engines.base import Engine, Line, TokenUsage
from hunyuan_ocr.engines.visual_tokens import PixelBounds
from hunyuan_ocr.errors import DeadlineExceeded, OcrError, TaskUnsupported
from hunyuan_ocr.reading import PageLine, PageResult, Reading, ReadRequest
from hunyuan_ocr.recognise import OnText, Recognition, TextEvent, recognise
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.tasks.prompts import TaskRequest, build_prompt
from hunyuan_ocr.telemetry.metrics import Metrics
from hunyuan_ocr.telemetry.stages import Stage, StageRecorder
from hunyuan_ocr.traffic.admission_control import AdmissionControl
from hunyuan_ocr.traffic.classes import Priority, priority_of
from hunyuan_ocr.traffic.cost import Work
from hunyuan_ocr.traffic.drain import Drain
from hunyuan_ocr.traffic.tickets import Asked, Ticket

# A page shown to the model below half its size may lose small print: callers are told.
DOWNSCALED_BELOW = 0.5
# The name under which requests that are passed through are priced.
PASSED_THROUGH = "passed_through"
# Time lost to a caller who takes text slowly is not the engine's: beyond this part of a page's
# time, what was measured says nothing.
_HELD_BACK_MAX = 0.05


@dataclass(frozen=True, slots=True)
class PipelineLimits:
    """What one request may ask for; of a document `pages_at_once` are worked on."""

    document: Limits
    max_pages: int
    pages_at_once: int
    pdf_dpi: int


@dataclass(frozen=True, slots=True)
class PassedThrough:
    """A request that goes to the engine as it is; `deadline` by the event loop's clock."""

    tenant: str
    priority: Priority
    deadline: float
    visual_tokens: int
    vit_patches: int


class Pipeline:
    """Owns the order of the steps; the work is done by what it is given."""

    def __init__(
        self,
        *,
        engine: Engine,
        preparer: Preparer,
        control: AdmissionControl,
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
        self._control = control
        capabilities = engine.capabilities
        self._bounds = PixelBounds(capabilities.min_pixels, capabilities.max_pixels)

    def check(self, possible: Iterable[Priority], tenant: str) -> None:
        """Raise what every request is refused with that may turn out to be of these classes."""
        if refusal := self._engine.refusal():
            raise refusal.for_caller()
        self._control.check(possible, tenant)

    @asynccontextmanager
    async def open(self, request: ReadRequest, stages: StageRecorder) -> AsyncIterator[Reading]:
        """Admit a document and start reading it; leaving the block stops what is unfinished.

        Raises the OcrError of whatever refuses the document as a whole. A page's own error is
        an item of `results`.
        """
        self._check_task(request.task)
        document = Document(sniff(request.data), request.data, password=request.password)
        async with spooled(document, self._spool_directory) as document:
            with stages.stage(Stage.INSPECT):
                info = await self._inspect(document, request)
            selected = parse_pages(request.pages, len(info.pages), self._limits.max_pages)
            priority = priority_of(request.priority, len(selected))
            reading = Reading(
                pages_total=len(info.pages),
                selected=selected,
                cut_off=info.cut_off,
                priority=priority,
                deadline=self._deadline(request, priority),
            )
            asked = self._asked(request, reading, info)
            async with self._control.admit(asked) as tickets:
                job = partial(self._page, document, request, stages, reading)
                jobs = (partial(job, *page) for page in zip(selected, tickets, strict=True))
                at_once = self._limits.pages_at_once
                async with aclosing(as_they_finish(jobs, at_once)) as reading.results:
                    yield reading

    @asynccontextmanager
    async def turn(
        self, asked: PassedThrough, stages: StageRecorder
    ) -> AsyncIterator[Callable[[TokenUsage], None]]:
        """Hold the engine for a request that is passed through without being prepared here.

        Tell the function that is yielded what the engine counted, before leaving.
        """
        price = self._control.price(PASSED_THROUGH, asked.visual_tokens, asked.vit_patches)
        wanted = Asked(asked.priority, asked.tenant, asked.deadline, (price,))
        async with self._control.admit(wanted) as (ticket,), AsyncExitStack() as turn:
            with stages.stage(Stage.QUEUE):
                await turn.enter_async_context(self._control.turn(ticket))

            def served(usage: TokenUsage) -> None:
                self._count_tokens(usage)
                work = Work(asked.visual_tokens, asked.vit_patches, usage.output)
                self._served(ticket, PASSED_THROUGH, work, trusted=True)

            async with self._engine_slots(ticket, stages):
                yield served

    @asynccontextmanager
    async def _engine_slots(self, ticket: Ticket, stages: StageRecorder) -> AsyncIterator[None]:
        async with AsyncExitStack() as slots:
            with stages.stage(Stage.QUEUE):
                await slots.enter_async_context(self._control.engine(ticket))
            with stages.stage(Stage.ENGINE):
                yield

    def _served(self, ticket: Ticket, task: str, work: Work, *, trusted: bool) -> None:
        ratio = self._control.served(ticket, task, work, trusted=trusted)
        self._metrics.service_ratio.observe(ratio)

    def _deadline(self, request: ReadRequest, priority: Priority) -> float:
        return request.arrived_at + self._control.timeout_s(priority, request.timeout_s)

    def _asked(self, request: ReadRequest, reading: Reading, info: DocumentInfo) -> Asked:
        """The request with a price for each page, from what its header says of its size."""
        bounds = self._bounds
        if (factor := self._control.pixel_factor) < 1:
            bounds = replace(bounds, max_pixels=int(bounds.max_pixels * factor))
        prices = []
        for index in reading.selected:
            size = info.pages[index].width, info.pages[index].height
            prices.append(
                self._control.price(request.task.task, bounds.tokens(*size), bounds.patches(*size))
            )
        return Asked(reading.priority, request.tenant, reading.deadline, prices)

    def _check_task(self, task: TaskRequest) -> None:
        capabilities = self._engine.capabilities
        if task.task not in capabilities.tasks:
            raise TaskUnsupported(f"the {capabilities.engine} engine does not do {task.task!s}")
        if task.has_words and not capabilities.prompted:
            raise TaskUnsupported(f"the {capabilities.engine} engine follows no instruction")
        build_prompt(task, capabilities.generation)  # refuses a task that asks for nothing
        if refusal := self._engine.refusal():
            raise refusal.for_caller()

    async def _inspect(self, document: Document, request: ReadRequest) -> DocumentInfo:
        try:
            async with asyncio.timeout_at(
                self._deadline(request, priority_of(request.priority, 1))
            ):
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
        ticket: Ticket,
    ) -> PageResult:
        try:
            async with asyncio.timeout_at(reading.deadline):
                result = await self._read(document, index, ticket, request, stages, reading)
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
        ticket: Ticket,
        request: ReadRequest,
        stages: StageRecorder,
        reading: Reading,
    ) -> PageResult:
        """Prepare the page while others hold the engine, read it, map its boxes back."""
        async with AsyncExitStack() as turn:
            with stages.stage(Stage.QUEUE):
                await turn.enter_async_context(self._control.turn(ticket))
            if len(reading.selected) > 1:  # a single page is all of a request in flight
                self._drain.check()
            options = self._prepare_options()
            with stages.stage(Stage.PREPARE):
                async with self._preparer.turn(document):
                    page = await self._preparer.prepare(document, index, options)
            listener = _Listener(partial(reading.on_text, index)) if reading.on_text else None
            async with self._engine_slots(ticket, stages):
                recognition = await recognise(
                    self._engine,
                    page.image,
                    request.task,
                    generation=self._engine.capabilities.generation,
                    request_id=f"{request.request_id}-{index}",
                    max_output_tokens=self._engine.capabilities.max_output_tokens,
                    on_text=listener.hear if listener else None,
                )
                self._learn(ticket, request.task.task, page, recognition, listener)
        return self._result(index, page, recognition, self._degraded(page, options, reading))

    def _learn(
        self,
        ticket: Ticket,
        task: Task,
        page: PreparedPage,
        read: Recognition,
        listener: _Listener | None,
    ) -> None:
        held_back_s = listener.seconds if listener else 0.0
        if held_back_s > _HELD_BACK_MAX * (asyncio.get_running_loop().time() - ticket.started_at):
            return
        size = page.image.width, page.image.height
        work = Work(self._bounds.tokens(*size), self._bounds.patches(*size), read.usage.output)
        self._served(ticket, task, work, trusted=read.attempts == 1)

    def _prepare_options(self) -> PrepareOptions:
        capabilities = self._engine.capabilities
        return PrepareOptions(
            max_pixels=int(capabilities.max_pixels * self._control.pixel_factor),
            min_pixels=capabilities.min_pixels,
            encoding=capabilities.encoding,
            accepts=capabilities.accepts,
            max_source_megapixels=self._limits.document.max_megapixels,
            pdf_dpi=self._limits.pdf_dpi,
        )

    def _degraded(
        self, page: PreparedPage, options: PrepareOptions, reading: Reading
    ) -> tuple[str, ...]:
        """What the ladder of degradation did to this page, by the names of its warnings."""
        warnings = []
        lowered = options.max_pixels < self._engine.capabilities.max_pixels
        if lowered and _pixels(page.source) > options.max_pixels:
            warnings.append("resolution_lowered")
        if self._control.batch_shrunk and reading.priority is Priority.BATCH:
            warnings.append("batch_slowed")
        return tuple(warnings)

    def _result(
        self, index: int, page: PreparedPage, read: Recognition, degraded: tuple[str, ...]
    ) -> PageResult:
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
            degraded="resolution_lowered" in degraded,
            finish_reason=read.finish_reason,
            warnings=(*read.warnings, *shrunk, *degraded),
            usage=read.usage,
        )

    def _failed(self, index: int, error: OcrError) -> PageResult:
        return PageResult(
            index=index, status="error", engine=self._engine.capabilities.engine, error=error
        )

    def _count_tokens(self, usage: TokenUsage) -> None:
        self._metrics.tokens.labels("prompt").inc(usage.prompt)
        self._metrics.tokens.labels("output").inc(usage.output)

    def _count(self, task: Task, result: PageResult) -> None:
        outcome = result.error.code if result.error else "ok"
        if result.error:
            self._metrics.refused.labels(outcome).inc()
        self._metrics.pages.labels(task, result.engine, outcome).inc()
        self._metrics.megapixels.inc(result.width * result.height / 1e6)
        self._metrics.degraded.inc(result.degraded)
        self._count_tokens(result.usage)


class _Listener:
    """A caller who hears text as it is generated; `seconds` is how long it held the engine back."""

    def __init__(self, hear: OnText) -> None:
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self.seconds = 0.0

    async def hear(self, event: TextEvent) -> None:
        began = self._loop.time()
        await self._hear(event)
        self.seconds += self._loop.time() - began


def _pixels(size: PageSize) -> int:
    return size.width * size.height


def _in_source(line: Line, page: PreparedPage) -> PageLine:
    mapped = (page.placement.to_source(point) for point in line.polygon)
    polygon = clamp(mapped, page.source.width, page.source.height)
    return PageLine(line.text, tuple((round(x, 1), round(y, 1)) for x, y in polygon), line.label)
