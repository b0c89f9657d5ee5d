"""The load that callers offer, which is what an autoscaler should follow.

The engine's own queue says little: a limit that works keeps it short. What is refused counts here,
unless the caller's own quota or a drain refused it: another replica would not.
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
        self._shed_per_s = 0.0  # engine seconds, over the last seconds
        self._shed_at = 0.0

    def admitted(self, cost: float) -> None:
        self._on_offered("admitted", cost / self._admission.drain_rate)

    def refused(self, refusal: Refusal) -> None:
        engine_s = refusal.cost / self._admission.drain_rate
        self._on_offered(refusal.reason, engine_s)
        self._shed_per_s = self._shed() + engine_s / _TIME_CONSTANT_S
        self._shed_at = self._clock()

    @property
    def value(self) -> float:
        """The part of the engine in use, what would work off each class's queue within the time
        that it may be long, and what is refused."""
        admission = self._admission
        queued = sum(admission.fullness(priority) for priority in Priority)
        return admission.held_slots / admission.limit_slots + queued + self._shed()

    def _shed(self) -> float:
        elapsed_s = max(0.0, self._clock() - self._shed_at)
        return self._shed_per_s * math.exp(-elapsed_s / _TIME_CONSTANT_S)
