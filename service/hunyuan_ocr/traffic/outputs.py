"""How long the answers to a task are."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

_QUANTILE = 0.8
_WINDOW = 256


class OutputTokens:
    """A quantile of the lengths of the last answers to one task."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []

    def observe(self, tokens: int) -> None:
        self._recent.append(tokens)
        insort(self._sorted, tokens)
        if len(self._recent) > _WINDOW:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]

    @property
    def value(self) -> int:
        """The quantile; what was expected beforehand counts as sixteen answers."""
        count = len(self._sorted)
        if not count:
            return self._expected
        seen = self._sorted[min(count - 1, int(_QUANTILE * count))]
        return round((seen * count + self._expected * 16) / (count + 16))
