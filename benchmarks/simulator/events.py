"""Virtual time: what happens next, and when."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class Timer:
    """Something that will happen unless it is cancelled."""

    __slots__ = ("act",)

    def __init__(self, act: Callable[[], None]) -> None:
        self.act: Callable[[], None] | None = act

    def cancel(self) -> None:
        self.act = None


class Timeline:
    """A discrete-event loop; `now` is in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Timer]] = []
        self._order = count()

    def at(self, when: float, act: Callable[[], None]) -> Timer:
        timer = Timer(act)
        heappush(self._due, (max(when, self.now), next(self._order), timer))
        return timer

    def after(self, delay_s: float, act: Callable[[], None]) -> Timer:
        return self.at(self.now + delay_s, act)

    def run(self, until: float) -> None:
        while self._due and self._due[0][0] <= until:
            self.now, _, timer = heappop(self._due)
            if timer.act is not None:
                timer.act()
        self.now = until
