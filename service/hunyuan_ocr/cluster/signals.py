"""What the breaker does, told to the cluster: Events on the pod, and its readiness gate.

All calls are made by one thread of its own. What is told returns at once, and an API server that is
down costs a log line a minute.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, Protocol

from hunyuan_ocr import sandbox
from hunyuan_ocr.cluster.api import Pod
from hunyuan_ocr.cluster.gate import RENEW_PERIOD_S, Cause, Gate, GateApi

_log = logging.getLogger(__name__)

Change = Literal["opened", "half_open", "closed", "derated", "restored"]

# Of the breaker's reasons, those for which another pod would do better; latency or errors may well
# be the load's own, and a pod less would only spread them.
CAUSES = {
    "thermal": Cause("GpuTooHot", "The GPU is throttled by its temperature."),
    "engine_hung": Cause("EngineHung", "The engine is dead or makes no step."),
}
_LOG_PERIOD_S = 60.0
_CLOSE_WITHIN_S = 5.0
_BURST = 12
_EVENT_PERIOD_S = 60.0


class SignalsApi(GateApi, Protocol):
    """What the signals need of `ClusterApi`."""

    @property
    def pod(self) -> Pod: ...
    def add_event(self, reason: str, note: str, *, warning: bool) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Event:
    reason: str
    note: str
    warning: bool


def event_of(change: Change, reasons: Collection[str]) -> Event:
    why = ", ".join(sorted(reasons)) or "unknown"
    match change:
        case "opened":
            return Event("BreakerOpened", f"The breaker refuses pages: {why}.", True)
        case "half_open":
            return Event("BreakerHalfOpen", "The breaker lets a few pages through to try.", False)
        case "closed":
            return Event("BreakerClosed", "The breaker lets pages through again.", False)
        case "derated":
            return Event("Derated", f"Fewer pages are read at once: {why}.", True)
        case "restored":
            return Event("Restored", "As many pages as before are read at once.", False)


class EventBudget:
    """Lets 12 events through, and one more a minute; those held back are told as a number."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = float(_BURST)
        self._counted_s = clock()
        self._held_back = 0

    def spend(self, event: Event) -> Event | None:
        """The event to send, or None."""
        now_s = self._clock()
        self._left = min(_BURST, self._left + (now_s - self._counted_s) / _EVENT_PERIOD_S)
        self._counted_s = now_s
        if self._left < 1:
            self._held_back += 1
            return None
        self._left -= 1
        held_back, self._held_back = self._held_back, 0
        if not held_back:
            return event
        return Event(event.reason, f"{event.note} {held_back} changes before were not told.",
                     event.warning)  # fmt: skip


class ClusterSignals:
    """Signals of one pod.

    `connect` makes the API in the signals' own thread, since that takes a second, and is called
    again until it succeeds. At most `max_unready_percent` of the pods of `deployment` are out of
    their Service at once.
    """

    def __init__(
        self,
        connect: Callable[[], SignalsApi],
        *,
        deployment: str,
        max_unready_percent: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._deployment = deployment
        self._max_unready_percent = max_unready_percent
        self._clock = clock
        self._cause: Cause | None = None
        self._events: deque[Event] = deque(maxlen=2 * _BURST)
        self._budget = EventBudget(clock)
        self._api: SignalsApi | None = None
        self._gate: Gate | None = None
        self._leaving = False
        self._closing = False
        self._logged_s: float | None = None
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cluster-signals", daemon=True)

    def start(self) -> None:
        """Begin, and first of all tell that the pod serves, without which it never is Ready."""
        if not sandbox.available():
            _log.warning("this kernel has no Landlock: decode workers could read the pod's token")
        self._wake.set()
        self._thread.start()

    def tell(self, change: Change, reasons: Collection[str] = ()) -> None:
        """A transition of the breaker, or a change of its limit; returns at once.

        An open breaker takes the pod out of its Service for some reasons. A half-open one brings
        it back, as it needs pages to try.
        """
        if (event := self._budget.spend(event_of(change, reasons))) is not None:
            self._events.append(event)
        if change in ("opened", "half_open", "closed") and not self._leaving:
            causes = [CAUSES[reason] for reason in CAUSES if reason in reasons]
            self._cause = causes[0] if change == "opened" and causes else None
        self._wake.set()

    def leave(self) -> None:
        """The pod drains: its Lease is for others. Nothing takes it out any more."""
        self._leaving = True
        self._cause = None
        self._wake.set()

    async def close(self) -> None:
        """Give everything back and stop, within 5 s even if the API server hangs."""
        self.leave()
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, _CLOSE_WITHIN_S)

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(RENEW_PERIOD_S)
            self._wake.clear()
            self._step()
        self._step()
        if self._api is not None:
            self._api.close()

    def _step(self) -> None:
        try:
            if self._api is None or self._gate is None:
                self._api = self._connect()
                self._gate = Gate(
                    self._api,
                    pod=self._api.pod.name,
                    deployment=self._deployment,
                    max_unready_percent=self._max_unready_percent,
                    clock=self._clock,
                )
            self._gate.step(self._cause)
            while self._events:
                event = self._events.popleft()
                self._api.add_event(event.reason, event.note, warning=event.warning)
        except Exception as error:  # noqa: BLE001 - the thread must outlive whatever is answered
            self._events.clear()
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        now_s = self._clock()
        if self._logged_s is None or now_s - self._logged_s >= _LOG_PERIOD_S:
            self._logged_s = now_s
            fields = {"why": str(error) or type(error).__name__}
            _log.warning("signals to the cluster are skipped", extra={"fields": fields})
