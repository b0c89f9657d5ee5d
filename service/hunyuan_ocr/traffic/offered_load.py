"""The load that callers offer, which is what an autoscaler should follow.

The engine's own queue says little: a limit that works keeps it short. What is refused counts here,
unless the caller's own quota or a drain refused it, or no engine could do it in its time: with
more replicas it would be the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hunyuan_ocr.traffic.admission import Admission
from hunyuan_ocr.traffic.classes import Priority
from hunyuan_ocr.traffic.tickets import Refusal

_TIME_CONSTANT_S = 30.0


class OfferedLoad:
    """Offered load in seconds of the whole engine a second: 1 is all that one replica can do.

    `on_offered` hears of engine seconds that were `admitted` or refused, then by the reason.
    """

    def __init__(
        self,
        admission: Admission,
        clock: Callable[[], float],
        on_offered: Callable[[str, float], None],
    ) -> None:
        self._admission = admission
        self._clock = clock
        self._on_offered = on_offered
        self._busy = 0.0  # the part of the engine in use, over the last seconds
        self._slot_seconds = 0.0
        self._shed_per_s = 0.0  # engine seconds, likewise
        self._looked_at = 0.0

    def admitted(self, cost: float) -> None:
        self._on_offered("admitted", cost / self._admission.drain_rate)

    def refused(self, refusal: Refusal) -> None:
        if refusal.reason == "time_too_short":
            return  # of any replica
        engine_s = refusal.cost / self._admission.drain_rate
        self._on_offered(refusal.reason, engine_s)
        self._shed_per_s += engine_s / _TIME_CONSTANT_S

    def observe(self) -> None:
        """Look at the engine; to be called about once a second."""
        now = self._clock()
        elapsed_s, self._looked_at = now - self._looked_at, now
        if elapsed_s <= 0:
            return
        before, self._slot_seconds = self._slot_seconds, self._admission.slot_seconds(now)
        busy = (self._slot_seconds - before) / elapsed_s / self._admission.limit_slots
        keep = math.exp(-elapsed_s / _TIME_CONSTANT_S)
        self._busy += (1 - keep) * (busy - self._busy)
        self._shed_per_s *= keep

    @property
    def value(self) -> float:
        """The part of the engine in use, what would work off each class's queue within the time
        that it may be long, and what is refused.

        All but the queues over the last seconds: few pages at once are a load that comes and goes
        from one moment to the next.
        """
        queued = sum(self._admission.fullness(priority) for priority in Priority)
        return self._busy + queued + self._shed_per_s
