"""Which load to measure next: wide steps first, then between those where something changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loadtest.knee import Knee, Point, find_knee
from loadtest.slo import boundary

# Two doublings in a row that bring less are the plateau.
_PLATEAU_GAIN = 0.1
# Around a knee, as parts of it: near enough to tell a corner from a curve.
_AROUND = (0.5, 0.63, 0.8, 1.0, 1.25, 1.6, 2.0)
# Levels nearer than this say the same.
_SAME = 1.09


@dataclass(frozen=True, slots=True)
class Measured:
    """One repeat of a level: what it brought, and whether the promise held."""

    point: Point
    held: bool


@dataclass(frozen=True, slots=True)
class Range:
    """Loads from `first` to `last` in steps of `growth`, refined down to steps of `finest`;
    `whole`: loads are whole numbers.
    """

    first: float
    last: float
    growth: float = 2.0
    finest: float = 1.12
    whole: bool = True

    def wide(self) -> Iterator[float]:
        level = self.first
        while level < self.last * (1 + 1e-9):
            yield self._rounded(level)
            level *= self.growth
        if level / self.growth * _SAME < self.last:
            yield self._rounded(self.last)

    def between(self, low: float, high: float) -> float | None:
        """A level between two, None where they are neighbours."""
        if high / low <= self.finest or (self.whole and high - low <= 1):
            return None
        return self._rounded(math.sqrt(low * high))

    def near(self, level: float) -> float | None:
        """The level itself, None outside the range."""
        rounded = self._rounded(level)
        return rounded if self.first <= rounded <= self.last else None

    def _rounded(self, level: float) -> float:
        return float(round(level)) if self.whole else float(f"{level:.3g}")


def next_level(limits: Range, measured: Sequence[Measured]) -> float | None:
    """None when all has been found that can be. Every level returned is a new one."""
    points = [one.point for one in measured]
    known = {point.load for point in points}
    if not settled(measured):
        for level in limits.wide():
            if level > max(known, default=0.0):
                return level
    edge = boundary((one.point.load, one.held) for one in measured)
    if edge.passed is not None and edge.failed is not None:
        middle = limits.between(edge.passed, edge.failed)
        if middle is not None and middle not in known:
            return middle
    knee = find_knee(points)
    if isinstance(knee, Knee):
        for part in _AROUND:
            near = limits.near(knee.load * part)
            if near is not None and all(not _same(limits, near, other) for other in known):
                return near
    return None


def settled(measured: Sequence[Measured]) -> bool:
    """Whether more load would show nothing new: the plateau is seen and the promise broken, or
    nothing is answered any more.
    """
    best: dict[float, float] = {}
    for one in measured:
        best[one.point.load] = max(best.get(one.point.load, 0.0), one.point.per_s)
    levels = sorted(best)
    if levels and not best[levels[-1]]:
        return True
    if len(levels) < 5 or any(one.held for one in measured if one.point.load == levels[-1]):
        return False
    a, b, c = (best[level] for level in levels[-3:])
    return max(b, c) < a * (1 + _PLATEAU_GAIN) and c < b * (1 + _PLATEAU_GAIN)


def _same(limits: Range, level: float, other: float) -> bool:
    ratio = max(level, other) / min(level, other)
    return level == other if limits.whole and level < 12 else ratio < _SAME
