"""The way of a page, from the bytes a caller sent to the lines of its text.

Every route and the command line walk this one path; each step takes a value and returns one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hunyuan_ocr.concurrency import as_they_finish
from hunyuan_ocr.documents.document import Document, DocumentInfo, PrepareOptions
from hunyuan_ocr.documents.header import Limits
from hunyuan_ocr.documents.pages import parse_pages
from hunyuan_ocr.documents.prepare import Preparer, spooled
from hunyuan_ocr.documents.sniff import sniff
from hunyuan_ocr.engine_turns import EngineTurns
from hunyuan_ocr.engines.base import NO_USAGE, Engine
from hunyuan_ocr.errors import DeadlineExceeded, OcrError, TaskUnsupported
from hunyuan_ocr.page_result import degradations, page_result
from hunyuan_ocr.reading import PageResult, Reading, ReadRequest
from hunyuan_ocr.recognise import Recognition
from hunyuan_ocr.stitch import read_page
from hunyuan_ocr.tasks.catalogue import BY_PARTS, PARAGRAPHS, PLACED
from hunyuan_ocr.tasks.prompts import TaskRequest, build_prompt
from hunyuan_ocr.telemetry.metrics import Metrics
from hunyuan_ocr.telemetry.stages import Stage, StageRecorder
from hunyuan_ocr.traffic.admission_control import AdmissionControl
from hunyuan_ocr.traffic.classes import Priority, priority_of
from hunyuan_ocr.traffic.drain import Drain
from hunyuan_ocr.traffic.engine_guard import EngineGuard
from hunyuan_ocr.traffic.tickets import Asked, Ticket


@dataclass(frozen=True, slots=True)
class PipelineLimits:
    """What one request may ask for; of a document `pages_at_once` are worked on."""

    document: Limits
    max_pages: int
    pages_at_once: int
    pdf_dpi: int
    max_tiles: int


@dataclass(frozen=True, slots=True)
class _Admitted:
    """A document whose pages were admitted, at the price of being shown with `options`."""

    document: Document
    request: ReadRequest
    options: PrepareOptions
    reading: Reading
    stages: StageRecorder


class Pipeline:
    """Owns the order of the steps; the work is done by what it is given."""

    def __init__(
        self,
        *,
        engine: Engine,
        preparer: Preparer,
        control: AdmissionControl,
        guard: EngineGuard,
        limits: PipelineLimits,
        metrics: Metrics,
        drain: Drain,
        spool_directory: Path,
        stands_in: bool = False,
    ) -> None:
        """`stands_in`: for an engine that reads better, so that its pages are degraded."""
        self._engine = engine
        self._preparer = preparer
        self._limits = limits
        self._metrics = metrics
        self._drain = drain
        self._spool_directory = spool_directory
        self._stands_in = stands_in
        self._control = control
        self._guard = guard
        # The ratio is the engine's that usually reads.
        ratio = None if stands_in else metrics.pages.service_ratio
        self.turns = EngineTurns(engine, control, guard, ratio)

    def check(self, possible: Iterable[Priority], tenant: str) -> None:
        """Raise what every request is refused with that may turn out to be of these classes."""
        self.turns.check()
        self._control.check(possible, tenant)

    def has_room(self, possible: Iterable[Priority], tenant: str) -> bool:
        """Whether admission would let it pass `check`; counts no refusal. Raises QuotaExceeded."""
        return self._control.has_room(possible, tenant)

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
            stages.usage.priority = priority
            reading = Reading(
                pages_total=len(info.pages),
                selected=selected,
                cut_off=info.cut_off,
                priority=priority,
                deadline=self._deadline(request, priority),
            )
            options = self._prepare_options(request)
            asked = self._asked(request, reading, info, options)
            async with self._control.admit(asked) as tickets:
                job = partial(self._page, _Admitted(document, request, options, reading, stages))
                jobs = (partial(job, *page) for page in zip(selected, tickets, strict=True))
                at_once = self._limits.pages_at_once
                async with aclosing(as_they_finish(jobs, at_once)) as reading.results:
                    yield reading

    def _deadline(self, request: ReadRequest, priority: Priority) -> float:
        return request.arrived_at + self._control.timeout_s(priority, request.timeout_s)

    def _asked(
        self, request: ReadRequest, reading: Reading, info: DocumentInfo, options: PrepareOptions
    ) -> Asked:
        """The request with a price for each page, from what its header says of its size."""
        price = partial(self.turns.price, request.task, options=options)
        prices = [price(info.pages[index]) for index in reading.selected]
        return Asked(reading.priority, request.tenant, reading.deadline, prices)

    def can(self, task: TaskRequest) -> bool:
        """Whether the engine does this task."""
        capabilities = self._engine.capabilities
        followed = capabilities.prompted or not task.has_words
        return followed and task.task in capabilities.tasks

    def _check_task(self, task: TaskRequest) -> None:
        capabilities = self._engine.capabilities
        if task.task not in capabilities.tasks:
            raise TaskUnsupported(f"the {capabilities.engine} engine does not do {task.task!s}")
        if not self.can(task):
            raise TaskUnsupported(f"the {capabilities.engine} engine follows no instruction")
        build_prompt(task, capabilities.generation)  # refuses a task that asks for nothing
        self.turns.check()

    async def _inspect(self, document: Document, request: ReadRequest) -> DocumentInfo:
        try:
            async with asyncio.timeout_at(
                self._deadline(request, priority_of(request.priority, 1))
            ):
                return await self._preparer.inspect(document, self._limits.document, request.tenant)
        except TimeoutError:
            raise DeadlineExceeded("the document was not opened within its time") from None

    async def _page(self, admitted: _Admitted, index: int, ticket: Ticket) -> PageResult:
        try:
            async with asyncio.timeout_at(admitted.reading.deadline):
                with admitted.stages.page(index):
                    result = await self._read(admitted, index, ticket)
        except TimeoutError:
            result = self._failed(index, DeadlineExceeded())
        except OcrError as error:
            result = self._failed(index, error)
        self._count(admitted, result)
        return result

    async def _read(self, admitted: _Admitted, index: int, ticket: Ticket) -> PageResult:
        """Prepare the page while others hold the engine, and read what is on it."""
        request, reading, stages = admitted.request, admitted.reading, admitted.stages
        async with AsyncExitStack() as turn:
            waits = turn.enter_context(stages.in_parts(Stage.QUEUE))
            with waits():
                await turn.enter_async_context(self._control.turn(ticket))
            if len(reading.selected) > 1:  # a single page is all of a request in flight
                self._drain.check()
            self._guard.check_open()
            # Never with more pixels than it was priced at: that much memory is kept for it.
            factor = min(admitted.options.pixel_factor, self._control.pixel_factor)
            options = replace(admitted.options, pixel_factor=factor)
            with stages.stage(Stage.PREPARE):
                async with self._preparer.turn(admitted.document):
                    page = await self._preparer.prepare(admitted.document, index, options)
            recognition = _nothing(request.task)
            if not page.blank:
                name = f"{request.request_id}-{index}"
                read = partial(self.turns.read, ticket, stages.usage, request.task, name)
                gap = "\n\n" if request.task.task in PARAGRAPHS else "\n"
                on_text = partial(reading.on_text, index) if reading.on_text else None
                async with self.turns.hold(ticket, stages, waits):
                    recognition = await read_page(page, read, gap, on_text)
        slowed = self._control.batch_shrunk and reading.priority is Priority.BATCH
        degraded = degradations(page, options, stands_in=self._stands_in, slowed=slowed)
        engine = self._engine.capabilities.engine
        return page_result(index, engine, page, recognition, degraded)

    def _prepare_options(self, request: ReadRequest) -> PrepareOptions:
        capabilities, task = self._engine.capabilities, request.task.task
        return PrepareOptions(
            max_pixels=capabilities.max_pixels[request.detail],
            min_pixels=capabilities.min_pixels,
            encoding=capabilities.encoding,
            accepts=capabilities.accepts,
            max_source_megapixels=self._limits.document.max_megapixels,
            pdf_dpi=self._limits.pdf_dpi,
            orient=request.orient,
            max_tiles=self._limits.max_tiles if task in BY_PARTS else 1,
            placed=capabilities.places_lines or task in PLACED,
            pixel_factor=self._control.pixel_factor,
        )

    def _failed(self, index: int, error: OcrError) -> PageResult:
        return PageResult(
            index=index, status="error", engine=self._engine.capabilities.engine, error=error
        )

    def _count(self, admitted: _Admitted, result: PageResult) -> None:
        usage, task = admitted.stages.usage, admitted.request.task.task
        if result.error:
            usage.page_failed(task, result.engine, result.error.code)
        else:
            pixels = result.width * result.height
            reason = result.finish_reason or "stop"
            usage.page_read(task, result.engine, pixels, reason, result.degraded)


def _nothing(request: TaskRequest) -> Recognition:
    """What is read on a blank page."""
    value = dict.fromkeys(request.fields) or None
    return Recognition("", (), value, "stop", NO_USAGE, (), attempts=0)
