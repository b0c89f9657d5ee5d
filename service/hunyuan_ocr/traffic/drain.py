"""Leaving without losing a page: the phases of a drain, and carrying one out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from hunyuan_ocr.errors import Draining

_log = logging.getLogger(__name__)

# Another replica is there at once, a successor to a single one takes minutes.
_RETRY_AFTER_S = 5.0
_POLL_PERIOD_S = 0.05


class Phase(StrEnum):
    """How far a drain is; a service that runs is `SERVING`."""

    SERVING = "serving"
    # Callers that have not heard yet that it is unready are still served.
    PROPAGATING = "propagating"
    REFUSING = "refusing"
    DRAINED = "drained"


class Drain:
    """The state of a drain. `requests` are admitted and not fully answered yet.

    `clock` gives seconds. Nothing leads back: a service that drains will end.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._refuse_at_s: float | None = None
        self.requests = 0

    @property
    def phase(self) -> Phase:
        if self._refuse_at_s is None:
            return Phase.SERVING
        if self._clock() < self._refuse_at_s:
            return Phase.PROPAGATING
        return Phase.REFUSING if self.requests else Phase.DRAINED

    @property
    def begun(self) -> bool:
        return self._refuse_at_s is not None

    def begin(self, propagation_s: float) -> None:
        """Admit for `propagation_s` more, then refuse; of several calls the earliest end counts."""
        refuse_at_s = self._clock() + propagation_s
        if self._refuse_at_s is None or refuse_at_s < self._refuse_at_s:
            self._refuse_at_s = refuse_at_s

    @contextmanager
    def request(self) -> Iterator[None]:
        """Be in flight while inside. Raises Draining where no more is admitted."""
        self.check()
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    def check(self) -> None:
        """Raise Draining where nothing new may be begun."""
        if self.phase in (Phase.REFUSING, Phase.DRAINED):
            raise Draining(retry_after_s=_RETRY_AFTER_S)


class Drainer:
    """Carries a drain out, and tells the engine's container of it.

    In the folder `markers`, files named `draining` and `drained` appear in this order: while there
    is the first and not the second, the engine is still needed. `on_begin` hears of it once.
    """

    def __init__(
        self, drain: Drain, markers: Path | None, on_begin: Callable[[], None] = lambda: None
    ) -> None:
        self._drain = drain
        self._markers = markers
        self._on_begin = on_begin
        self._running: asyncio.Task[None] | None = None

    @property
    def phase(self) -> Phase:
        return self._drain.phase

    @property
    def requests(self) -> int:
        """Requests in flight."""
        return self._drain.requests

    def clear_markers(self) -> None:
        """Remove what an earlier run left; raises OSError."""
        if self._markers is not None:
            for phase in ("draining", "drained"):
                (self._markers / phase).unlink(missing_ok=True)

    def begin(self, propagation_s: float) -> None:
        """Begin, or join the drain that has begun."""
        self._drain.begin(propagation_s)
        if self._running is None:
            self._mark("draining")
            self._on_begin()
            self._running = asyncio.create_task(self._run())

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Whether a drain that has begun is over, within `timeout_s`."""
        assert self._running is not None  # noqa: S101
        done, _ = await asyncio.wait((self._running,), timeout=timeout_s)
        return bool(done)

    async def _run(self) -> None:
        told = None
        while (phase := self.phase) is not Phase.DRAINED:
            if phase is not told:
                _log.info("draining", extra={"fields": {"phase": phase, "requests": self.requests}})
                told = phase
            await asyncio.sleep(_POLL_PERIOD_S)
        self._mark("drained")
        _log.info("drained")

    def _mark(self, name: str) -> None:
        """An empty file: there or not there, never half."""
        if self._markers is None:
            return
        try:
            (self._markers / name).touch()
        except OSError as error:
            # Requests in flight matter more; the engine may then leave before they are done.
            _log.error("marker not written", extra={"fields": {"marker": name, "why": str(error)}})
