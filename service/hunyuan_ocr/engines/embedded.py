"""The engine that needs no GPU: bundled PP-OCRv6 models on the CPU, in worker processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from hunyuan_ocr.documents.document import ImageEncoding
from hunyuan_ocr.engines import embedded_worker
from hunyuan_ocr.engines.base import (
    Capabilities,
    EngineEvent,
    EngineHealth,
    EngineListener,
    EngineRequest,
    Finished,
    TextDelta,
)
from hunyuan_ocr.errors import EngineStarting, EngineUnavailable, OcrError, Unavailable
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.workers import WorkerPool

_PAGES_PER_WORKER = 1000


class EmbeddedEngine:
    """Reads pages with rapidocr, one page per worker process at a time."""

    def __init__(
        self,
        *,
        workers: int = 1,
        threads_per_worker: int = 1,
        page_timeout_s: float = 60.0,
        max_pixels: int = 4_000_000,
        high_pixels: int = 12_000_000,
        listener: EngineListener | None = None,
    ) -> None:
        self._page_timeout_s = page_timeout_s
        self._listener = listener
        self._pool = WorkerPool(
            workers=workers,
            # A worker's memory grows to what its largest page took.
            max_tasks_per_worker=_PAGES_PER_WORKER,
            setup=embedded_worker.load,
            setup_args=(threads_per_worker,),
        )
        self._refusal: Unavailable | None = EngineStarting("the embedded engine was not started")
        self.capabilities = Capabilities(
            engine="embedded",
            model="PP-OCRv6-small",
            tasks=frozenset({Task.TEXT, Task.SPOTTING, Task.MARKDOWN}),
            encoding=ImageEncoding.BMP,  # costs nothing to write or read; never leaves the machine
            min_pixels=32 * 32,
            max_pixels={"low": max_pixels // 4, "auto": max_pixels, "high": high_pixels},
            max_output_tokens=0,
            concurrency=workers,
            prompted=False,
            places_lines=True,
            vision_transformer=False,
        )

    async def start(self) -> None:
        """Load and warm all workers; raises `EngineUnavailable` where they cannot be."""
        try:
            embedded_worker.model_paths()
            self._pool.start()
            # One task each, since none takes a second before the first is done.
            await asyncio.gather(
                *(
                    self._pool.run(embedded_worker.ready, timeout_s=self._page_timeout_s)
                    for _ in range(self.capabilities.concurrency)
                )
            )
            self._refusal = None
            if self._listener is not None:
                await self._listener.met(self.capabilities, self.stream)
        except (FileNotFoundError, OcrError) as error:
            raise EngineUnavailable(f"the embedded engine cannot start: {error}") from error

    async def close(self) -> None:
        self._refusal = EngineUnavailable("the service is shutting down")
        await self._pool.close()

    def refusal(self) -> Unavailable | None:
        return self._refusal

    def health(self) -> EngineHealth:
        """Its workers are children of this process: whoever dies or hangs is replaced here."""
        reason = self._refusal.detail if self._refusal else ""
        return EngineHealth(answers=self._refusal is None, dead_for_s=0.0, reason=reason)

    async def scrape(self) -> None:
        """It counts nothing that is not among the service's own metrics."""

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineEvent]:
        """Read one page: all its text, then its lines in pixels of the image.

        Raises beside the protocol's errors what `WorkerPool.run` raises: `PageFailed` where the
        worker died, `DeadlineExceeded` past the page's time, which does not count waiting.
        """
        if self._refusal is not None:
            raise self._refusal.for_caller()
        try:
            lines = await self._pool.run(
                embedded_worker.read_page,
                request.image.data,
                request.task is not Task.SPOTTING,
                timeout_s=self._page_timeout_s,
            )
        except Unavailable as error:
            if self._refusal is None:
                raise
            raise self._refusal from error  # closed meanwhile
        gap = "\n\n" if request.task is Task.MARKDOWN else "\n"
        yield TextDelta(gap.join(line.text for line in lines))
        yield Finished(reason="stop", lines=tuple(lines))
