"""The last seconds of a card's readings, without those that cannot be true."""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Protocol

HARDWARE_THERMAL = "hardware_thermal"
THERMAL = frozenset({"software_thermal", HARDWARE_THERMAL})
# Sensors that are absent or asleep answer 0 or 255.
_PLAUSIBLE_C = (1.0, 150.0)
_SAME_SAMPLE_S = 0.05
# Throttled times of several causes and cards are added up, each of which grows as fast as time.
_COUNTERS_MAX = 8


class GpuReading(Protocol):
    """One sample of a card, taken `age_s` ago; None where the card does not tell."""

    @property
    def age_s(self) -> float: ...
    @property
    def temperature_c(self) -> float | None: ...
    @property
    def slowdown_in_c(self) -> float | None: ...
    @property
    def reasons(self) -> Set[str]: ...
    @property
    def throttled_ns(self) -> int | None: ...
    @property
    def sm_clock_mhz(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """`slowdown_in_c`: degrees left to the hardware's slowdown threshold."""

    taken_s: float
    slowdown_in_c: float | None
    clock_mhz: float | None
    throttled_ns: int | None
    hot: bool  # slowed by heat, in software or hardware
    hardware: bool  # by hardware


class GpuSamples:
    """Samples of the last `window_s`. Times never decrease (`SteadyTime`)."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._samples: deque[Sample] = deque()

    @property
    def last(self) -> Sample | None:
        return self._samples[-1] if self._samples else None

    def add(self, time_s: float, reading: GpuReading) -> Sample | None:
        """The new sample; None for one seen before, one that says nothing, or a wrong one."""
        taken_s = time_s - max(0.0, reading.age_s)
        if self.last is not None and taken_s <= self.last.taken_s + _SAME_SAMPLE_S:
            return None
        temperature_c, left_c = reading.temperature_c, reading.slowdown_in_c
        if temperature_c is None and left_c is None and not reading.reasons:
            return None
        low_c, high_c = _PLAUSIBLE_C
        if temperature_c is not None and not low_c <= temperature_c <= high_c:
            return None
        sample = Sample(
            taken_s,
            left_c,
            reading.sm_clock_mhz or None,  # 0 is a card asleep
            reading.throttled_ns,
            hot=not THERMAL.isdisjoint(reading.reasons),
            hardware=HARDWARE_THERMAL in reading.reasons,
        )
        self._samples.append(sample)
        while taken_s - self._samples[0].taken_s > self._window_s:
            self._samples.popleft()
        return sample

    @property
    def throttled_share(self) -> float:
        """The part of the window in which heat slowed the card; 0 while half of it is unknown.

        By its own counter where it has one, else by samples, of which one alone may be wrong. A
        counter that was reset adds nothing, nor one that jumped.
        """
        samples = self._samples
        elapsed_s = samples[-1].taken_s - samples[0].taken_s if samples else 0.0
        if elapsed_s < self._window_s / 2:
            return 0.0
        counted = [(s.taken_s, s.throttled_ns) for s in samples if s.throttled_ns is not None]
        if len(counted) < 2:
            hot = sum(s.hot for s in samples)
            return hot / len(samples) if hot > 1 else 0.0
        throttled_s = sum(
            _grown_s((later - before) / 1e9, until_s - from_s)
            for (from_s, before), (until_s, later) in pairwise(counted)
        )
        return min(1.0, throttled_s / elapsed_s)

    @property
    def hot_clocks_mhz(self) -> list[float]:
        """The clocks while heat slowed the card; of all samples where it did so between them."""
        clocks = [(s.hot, s.clock_mhz) for s in self._samples if s.clock_mhz is not None]
        return [mhz for hot, mhz in clocks if hot] or [mhz for _, mhz in clocks]

    @property
    def slowdown_in_c(self) -> float | None:
        """The median of the last three, so that one wrong value does nothing."""
        left = [s.slowdown_in_c for s in self._samples if s.slowdown_in_c is not None]
        return median(left[-3:]) if left else None


def _grown_s(by_s: float, elapsed_s: float) -> float:
    """Where one of the counters was away for a sample, the sum falls and jumps by all of it."""
    return min(by_s, elapsed_s) if 0 <= by_s <= _COUNTERS_MAX * elapsed_s else 0.0
