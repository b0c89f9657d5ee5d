"""The engine that needs no GPU: bundled PP-OCRv6 models on the CPU, in worker processes."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
from collections.abc import AsyncIterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from pebble import ProcessFuture, ProcessPool

from hunyuan_ocr.documents.document import ImageEncoding
from hunyuan_ocr.engines import embedded_worker
from hunyuan_ocr.engines.base import (
    Capabilities,
    EngineEvent,
    EngineRequest,
    Finished,
    Line,
    TextDelta,
)
from hunyuan_ocr.errors import (
    DeadlineExceeded,
    EngineRejected,
    EngineStarting,
    EngineUnavailable,
    PageFailed,
    TaskUnsupported,
    Unavailable,
)
from hunyuan_ocr.tasks.catalogue import Task

_log = logging.getLogger(__name__)
_TASKS = frozenset({Task.TEXT, Task.SPOTTING, Task.MARKDOWN})
_RESTART_PAUSE_S = 1.0
_KILL_GRACE_S = 10.0


class EmbeddedEngine:
    """Reads pages with rapidocr, one page per worker process at a time.

    Each worker is a pool of one: a pool shared by several would fail all their pages when one
    dies idle. A worker that crashed, ran out of time or was cancelled is replaced in the
    background, and takes pages again only when its models are loaded.
    """

    def __init__(
        self,
        *,
        workers: int = 1,
        threads_per_worker: int = 1,
        page_timeout_s: float = 60.0,
        start_timeout_s: float = 120.0,
        max_pixels: int = 4_000_000,
    ) -> None:
        self._threads_per_worker = threads_per_worker
        self._page_timeout_s = page_timeout_s
        self._start_timeout_s = start_timeout_s
        self._idle: asyncio.Queue[ProcessPool | None] = asyncio.Queue()
        self._pools: set[ProcessPool] = set()
        self._jobs: set[asyncio.Future[Any]] = set()
        self._replacing: set[asyncio.Task[None]] = set()
        self._unready: str | None = "the embedded engine has not been started"
        self._closed = False
        self._capabilities = Capabilities(
            engine="embedded",
            model="PP-OCRv6-small",
            tasks=_TASKS,
            encoding=ImageEncoding.BMP,  # costs nothing to write or read; never leaves the machine
            min_pixels=32 * 32,
            max_pixels=max_pixels,
            max_output_tokens=0,
            concurrency=workers,
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def start(self) -> None:
        """Load and warm all workers; raises `EngineUnavailable` where they cannot be."""
        self._unready = "the embedded engine is loading its models"
        try:
            embedded_worker.model_paths()
        except FileNotFoundError as error:
            raise EngineUnavailable(str(error)) from error
        await asyncio.gather(*(self._add_worker() for _ in range(self._capabilities.concurrency)))
        self._unready = None

    async def close(self) -> None:
        """End all workers; pages waiting or being read fail with `EngineUnavailable`."""
        self._closed = True
        self._unready = "the embedded engine is closed"
        self._idle.put_nowait(None)
        for job in tuple(self._jobs):
            job.cancel()  # a pool that stops leaves the futures of its tasks pending
        await asyncio.gather(*map(self._end, tuple(self._pools)))
        await asyncio.gather(*self._replacing)

    def refusal(self) -> Unavailable | None:
        if self._closed:
            return EngineUnavailable(self._unready or "")
        if self._unready is not None:
            return EngineStarting(self._unready)
        if len(self._replacing) == self._capabilities.concurrency:
            return EngineUnavailable("all workers of the embedded engine are being restarted")
        return None

    async def stream(self, request: EngineRequest) -> AsyncIterator[EngineEvent]:
        """Read one page: all its text, then its lines in pixels of the image.

        Raises beside the protocol's errors `TaskUnsupported`, `PageFailed` where the worker
        died, and `DeadlineExceeded` past the page's time, which does not count waiting.
        """
        if request.task not in _TASKS:
            raise TaskUnsupported(f"the embedded engine does not do {request.task}")
        lines = await self._read(request)
        # In markdown, lines that only a newline parts would flow into one paragraph.
        separator = "\n\n" if request.task is Task.MARKDOWN else "\n"
        yield TextDelta(separator.join(line.text for line in lines))
        yield Finished(reason="stop", lines=tuple(lines))

    async def _read(self, request: EngineRequest) -> list[Line]:
        for _ in range(self._capabilities.concurrency + 1):
            pool = await self._take()
            fit = False
            try:
                lines = await self._run(pool, request)
                fit = True
                return lines
            except EngineRejected:
                fit = True
                raise
            except BrokenProcessPool:
                continue  # the worker had died idle: the page was never begun
            finally:
                if fit:
                    self._idle.put_nowait(pool)
                elif not self._closed:
                    self._replace(pool)
        raise PageFailed

    async def _take(self) -> ProcessPool:
        if self._unready is not None and not self._closed:
            raise EngineStarting(self._unready)
        pool = await self._idle.get()
        if pool is None or self._closed:
            self._idle.put_nowait(None)  # for whoever waits next
            raise EngineUnavailable("the embedded engine is closed")
        return pool

    async def _run(self, pool: ProcessPool, request: EngineRequest) -> list[Line]:
        try:
            job = pool.schedule(
                embedded_worker.read_page,
                args=(request.image.data, request.task is not Task.SPOTTING),
                timeout=self._page_timeout_s,
            )
        except RuntimeError as error:  # how pebble says that the pool is broken already
            raise BrokenProcessPool from error
        fault = await self._ended(job, self._page_timeout_s + _KILL_GRACE_S)
        if fault is None:
            return job.result()
        if isinstance(fault, embedded_worker.UnreadableImageError):
            raise EngineRejected("the image could not be decoded") from fault
        if isinstance(fault, TimeoutError):
            raise DeadlineExceeded("the page was not read within its time") from fault
        if isinstance(fault, BrokenProcessPool):
            raise fault
        raise PageFailed from fault

    async def _ended(self, job: ProcessFuture[Any], timeout_s: float) -> BaseException | None:
        """Wait for a job; what went wrong with it, or None. Cancelled, it cancels the job.

        `timeout_s` is for the case that the pool itself loses the job.
        """
        future = asyncio.wrap_future(job)
        self._jobs.add(future)
        try:
            if not self._closed:
                await asyncio.wait([future], timeout=timeout_s)
            lost = not future.done()
        finally:
            self._jobs.discard(future)
            future.cancel()
        if self._closed:
            raise EngineUnavailable("the embedded engine was closed")
        return TimeoutError() if lost else future.exception()

    def _replace(self, pool: ProcessPool) -> None:
        task = asyncio.create_task(self._restart(pool))
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)

    async def _restart(self, pool: ProcessPool) -> None:
        await self._end(pool)
        while not self._closed:
            try:
                await self._add_worker()
                break
            except EngineUnavailable as error:
                _log.warning("a worker of the embedded engine does not start: %s", error)
                await asyncio.sleep(_RESTART_PAUSE_S)

    async def _add_worker(self) -> None:
        pool = ProcessPool(
            max_workers=1,
            initializer=embedded_worker.load,
            initargs=(self._threads_per_worker,),
            context=multiprocessing.get_context("spawn"),
        )
        self._pools.add(pool)
        try:
            job = await asyncio.to_thread(pool.schedule, embedded_worker.ready)
        except RuntimeError as error:
            raise EngineUnavailable("the embedded engine was closed") from error
        fault = await self._ended(job, self._start_timeout_s)
        if fault is not None:
            await self._end(pool)
            raise EngineUnavailable("a worker could not load its models") from fault
        self._idle.put_nowait(pool)

    async def _end(self, pool: ProcessPool) -> None:
        self._pools.discard(pool)
        pool.stop()  # type: ignore[no-untyped-call]
        await asyncio.to_thread(pool.join)
