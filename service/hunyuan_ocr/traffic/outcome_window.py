"""Time that never runs backwards, and the share of bad outcomes within the last seconds of it."""

from __future__ import annotations

from collections import deque

_BUCKETS = 30


class SteadyTime:
    """Seconds that have passed by a clock that may jump: a step backwards counts as no time."""

    def __init__(self) -> None:
        self._last: float | None = None
        self.now_s = 0.0

    def advance(self, now: float) -> float:
        if self._last is not None:
            self.now_s += max(0.0, now - self._last)
        self._last = now
        return self.now_s


class OutcomeWindow:
    """Outcomes of the last `window_s`, and which share of them was bad.

    Times never decrease (`SteadyTime`). Memory does not grow with the number of outcomes.
    """

    def __init__(self, window_s: float, min_outcomes: int) -> None:
        self._bucket_s = window_s / _BUCKETS
        self._min_outcomes = min_outcomes
        self._buckets: deque[tuple[int, int, int]] = deque()  # bucket number, bad, all

    def add(self, now_s: float, *, bad: bool) -> None:
        number = int(now_s / self._bucket_s)
        bad_before, all_before = 0, 0
        if self._buckets and self._buckets[-1][0] == number:
            _, bad_before, all_before = self._buckets.pop()
        self._buckets.append((number, bad_before + bad, all_before + 1))

    def bad_share(self, now_s: float) -> float:
        """0 to 1; 0 with fewer than `min_outcomes` outcomes, which tell nothing."""
        oldest = int(now_s / self._bucket_s) - _BUCKETS
        while self._buckets and self._buckets[0][0] <= oldest:
            self._buckets.popleft()
        total = sum(count for _, _, count in self._buckets)
        if total < self._min_outcomes:
            return 0.0
        return sum(bad for _, bad, _ in self._buckets) / total

    def clear(self) -> None:
        self._buckets.clear()
