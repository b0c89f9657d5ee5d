"""When requests are to be sent: the kinds of load."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

BURST = 10


class Arrivals(StrEnum):
    POISSON = "poisson"  # as callers come who know nothing of each other
    CONSTANT = "constant"
    BURST = "burst"  # ten at once, the groups at random times


@dataclass(frozen=True, slots=True)
class Closed:
    """`in_flight` callers, each asking again once answered: draws the capacity."""

    in_flight: int

    @property
    def level(self) -> float:
        return float(self.in_flight)


@dataclass(frozen=True, slots=True)
class Open:
    """Requests a second that come whether or not earlier ones were answered: honest latency."""

    per_s: float
    arrivals: Arrivals = Arrivals.POISSON

    @property
    def level(self) -> float:
        return self.per_s


@dataclass(frozen=True, slots=True)
class Replay:
    """Requests at recorded seconds, over again where the trace is shorter than the step."""

    at_s: Sequence[float]

    @property
    def level(self) -> float:
        return len(self.at_s) / self.at_s[-1]


Load = Closed | Open | Replay


def due_times(load: Open | Replay, rng: random.Random) -> Iterator[float]:
    """Seconds since the beginning at which requests are due, ascending, without end."""
    if isinstance(load, Replay):
        yield from _replayed(load.at_s)
    elif load.arrivals is Arrivals.CONSTANT:
        yield from _constant(load.per_s)
    else:
        group = BURST if load.arrivals is Arrivals.BURST else 1
        at = 0.0
        while True:
            at += rng.expovariate(load.per_s / group)
            yield from [at] * group


def _constant(per_s: float) -> Iterator[float]:
    count = 0
    while True:
        yield (count := count + 1) / per_s


def _replayed(at_s: Sequence[float]) -> Iterator[float]:
    begin = 0.0
    while True:
        yield from (begin + at for at in at_s)
        begin += at_s[-1]


def read_trace(text: str) -> Replay:
    """A trace: one time in seconds a line, ascending. Raises ValueError."""
    times = [float(line) for line in text.split()]
    if not times or times != sorted(times) or not 0 <= times[0] < times[-1] < math.inf:
        raise ValueError("a trace holds one time in seconds a line, ascending, from 0, and not one")
    return Replay([at - times[0] for at in times])
