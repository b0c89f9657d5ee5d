"""Two ways of a page: the usual one, and the CPU engine's for what the usual one refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol

from hunyuan_ocr.errors import QueueFull, Unavailable
from hunyuan_ocr.pipeline import Pipeline
from hunyuan_ocr.reading import Reading, ReadRequest
from hunyuan_ocr.telemetry.stages import StageRecorder
from hunyuan_ocr.traffic.classes import Priority


class Documents(Protocol):
    """Where documents are read."""

    def check(self, possible: Iterable[Priority], tenant: str) -> None:
        """As `Pipeline.check`."""

    def open(
        self, request: ReadRequest, stages: StageRecorder
    ) -> AbstractAsyncContextManager[Reading]:
        """As `Pipeline.open`."""


class WithFallback:
    """Reads with `stand_in` what `usual` refuses for one of the `reasons`.

    Only tasks that the stand-in can do, for callers who allow it; its pages are `degraded`.
    """

    def __init__(
        self, usual: Pipeline, stand_in: Pipeline, reasons: tuple[type[Unavailable], ...]
    ) -> None:
        self._usual = usual
        self._stand_in = stand_in
        self._reasons = reasons

    def check(self, possible: Iterable[Priority], tenant: str) -> None:
        """Raise what both refuse; the task is not known yet."""
        possible = tuple(possible)
        if not self._is_taken_over(possible, tenant):
            self._usual.check(possible, tenant)

    def _is_taken_over(self, possible: Collection[Priority], tenant: str) -> bool:
        """Told without a refusal, which would count as load that nobody carried."""
        try:
            self._usual.turns.check()
            if QueueFull not in self._reasons or self._usual.has_room(possible, tenant):
                return False
        except self._reasons:
            pass
        try:
            self._stand_in.turns.check()
        except Unavailable:
            return False
        return self._stand_in.has_room(possible, tenant)

    @asynccontextmanager
    async def open(self, request: ReadRequest, stages: StageRecorder) -> AsyncIterator[Reading]:
        async with AsyncExitStack() as stack:
            try:
                reading = await stack.enter_async_context(self._usual.open(request, stages))
            except self._reasons:
                if not (request.allow_degraded and self._stand_in.can(request.task)):
                    raise
                reading = await stack.enter_async_context(self._stand_in.open(request, stages))
            yield reading
