"""The limit on slots: additive increase, multiplicative decrease on measured / reference service.

The reference knows the load and the size of the pages, so the ratio is 1 on a healthy engine
whatever it reads. Limits that compare latencies with their own past (gradient, Vegas) take a
change from small to large pages for congestion.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """Between `floor` and `ceiling` slots (equal: the limit is static). Ratios are measured /
    reference seconds, summed over a window of at least `window_s` and `window_pages`."""

    floor: float
    ceiling: float
    increase_below: float = 1.3
    decrease_above: float = 1.6
    decrease_to: float = 0.85
    window_s: float = 1.0
    window_pages: int = 8


class AdaptiveLimit:
    """Slots that may be held; starts at the ceiling, which the engine was configured for."""

    def __init__(self, options: LimitOptions, now: float) -> None:
        self._options = options
        self._slots = options.ceiling
        self._cut_at = -float("inf")
        self._began = now
        self._measured_s = self._reference_s = 0.0
        self._pages = 0
        self._in_use = False
        self.derate = 1.0  # lowered while the card is hot

    @property
    def slots(self) -> float:
        """The limit now; derating may take it below the floor, but never below one."""
        return max(1.0, self._slots * self.derate)

    def observe(self, now: float, measured_s: float, reference_s: float, *, in_use: bool) -> None:
        """A page was served; `in_use`: others were ready, for which there was no room."""
        self._measured_s += measured_s
        self._reference_s += reference_s
        self._pages += 1
        self._in_use |= in_use
        options = self._options
        if self._pages < options.window_pages or now - self._began < options.window_s:
            return
        ratio = self._measured_s / self._reference_s
        if ratio > options.decrease_above:
            self._move(self._slots * options.decrease_to)
        elif ratio < options.increase_below and self._in_use:
            self._move(self._slots + 1)
        self._begin(now)

    def overloaded(self, now: float, started: float) -> None:
        """The engine has more than it can hold, whatever its speed. Cut by half, once for all
        pages that were `started` before the last cut."""
        if started > self._cut_at:
            self._move(self._slots / 2)
            self._cut_at = now
            self._begin(now)

    def _begin(self, now: float) -> None:
        self._began = now
        self._measured_s = self._reference_s = 0.0
        self._pages = 0
        self._in_use = False

    def _move(self, slots: float) -> None:
        self._slots = min(max(slots, self._options.floor), self._options.ceiling)
