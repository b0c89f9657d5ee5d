"""What the card's heat asks for: less work, no work, or nothing.

A card at its target temperature holds itself there by a lower clock, a software thermal slowdown,
and is in health whatever its margins say. What counts is how much of its clock it had to give up,
and whether any is left to give. docs/decisions/0013-breaker.md has the reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from hunyuan_ocr.traffic.gpu_samples import GpuReading, GpuSamples, Sample
from hunyuan_ocr.traffic.outcome_window import SteadyTime


@dataclass(frozen=True, slots=True)
class ThermalProfile:
    """Of one kind of card; shares and factors are 0 to 1.

    `full_clock_mhz`: its clock under load when cool; None: unknown, margins decide alone.
    Derating: heat slows the card for more than `throttled_share` of `window_s`, and its clock
        meanwhile is below `derate_below_clock` of the full one; at `floor_clock` the limit is at
        its `floor`. With an unknown clock: fewer than `derate_within_c` to the slowdown threshold.
    Opening: `alarms` samples in a row of hardware slowdown, or beyond its threshold, or at most
        `open_within_c` from it with a clock below `spent_clock` of the full one or unknown.
    Cooled: not slowed by heat and `clear_within_c` to the threshold, for `clear_after_s`.
    Stale: no sample for `stale_after_s`. The limit is at most `stale_factor`, and what was open
        stays so for `stale_hold_s`.
    """

    full_clock_mhz: float | None = None
    throttled_share: float = 0.05
    window_s: float = 10.0
    derate_below_clock: float = 0.75
    floor_clock: float = 0.4
    floor: float = 0.4
    spent_clock: float = 0.3
    derate_within_c: float = 3.0
    open_within_c: float = 1.0
    alarms: int = 3
    clear_within_c: float = 8.0
    clear_after_s: float = 30.0
    stale_after_s: float = 5.0
    stale_factor: float = 0.7
    stale_hold_s: float = 60.0
    lower_per_s: float = 0.1
    raise_per_s: float = 0.025


# The published boost clock; cards run above it when cool.
RTX_4090_D = ThermalProfile(full_clock_mhz=2520.0)


@dataclass(frozen=True, slots=True)
class Assessment:
    """`factor` of the cost limit; `open`: nothing may run; `warm`: it has not cooled, so a trial
    after an opening goes on; `stale`: raise an alert.

    `slowdown`: how many times as slow heat made the card at most (full clock / least clock); 1
    where heat does not slow it, or it does not tell its clock.
    """

    factor: float = 1.0
    open: bool = False
    warm: bool = False
    stale: bool = False
    slowdown: float = 1.0
    sentence: str = ""


class ThermalPolicy:
    """Hears every reading, about one a second; a restarted process begins cool."""

    def __init__(self, profile: ThermalProfile) -> None:
        self._profile = profile
        self._time = SteadyTime()
        self._samples = GpuSamples(profile.window_s)
        self._alarms = 0
        self._open = False
        self._clear_since_s: float | None = None
        self._factor = 1.0

    def observe(self, now: float, reading: GpuReading | None) -> Assessment:
        """`reading` None: no source. Where there was one before, that is a stale one."""
        before_s = self._time.now_s
        time_s = self._time.advance(now)
        sample = None if reading is None else self._samples.add(time_s, reading)
        last = self._samples.last
        if last is None:
            return Assessment()
        silent_s = time_s - last.taken_s
        stale = silent_s > self._profile.stale_after_s
        if stale:
            self._hear_nothing(silent_s)
        elif sample is not None:
            self._hear(sample)
        self._move(self._wanted_factor(stale), time_s - before_s)
        return Assessment(
            self._factor,
            open=self._open,
            warm=self._clear_since_s is None and not stale,
            stale=stale,
            slowdown=self._slowdown,
            sentence=self._sentence(last, stale),
        )

    def _hear_nothing(self, silent_s: float) -> None:
        """Silence is neither heat nor cold."""
        self._alarms = 0
        self._clear_since_s = None
        if silent_s > self._profile.stale_hold_s:
            self._open = False

    def _hear(self, sample: Sample) -> None:
        self._alarms = self._alarms + 1 if self._is_alarm(sample) else 0
        left_c = self._samples.slowdown_in_c
        near = left_c is not None and left_c < self._profile.clear_within_c
        if sample.hot or near:
            self._clear_since_s = None
        elif self._clear_since_s is None:
            self._clear_since_s = sample.taken_s
        if self._alarms >= self._profile.alarms:
            self._open = True
        elif self._clear_since_s is not None:
            cooled_s = sample.taken_s - self._clear_since_s
            self._open = self._open and cooled_s < self._profile.clear_after_s

    def _is_alarm(self, sample: Sample) -> bool:
        profile, left_c = self._profile, sample.slowdown_in_c
        if sample.hardware or (left_c is not None and left_c < 0):
            return True
        spent_mhz = profile.spent_clock * (profile.full_clock_mhz or float("inf"))
        spent = sample.clock_mhz is None or sample.clock_mhz < spent_mhz
        return left_c is not None and left_c <= profile.open_within_c and spent

    @property
    def _clock(self) -> float | None:
        """What heat left of the full clock, 1 where it does not slow the card; None: unknown."""
        if self._samples.throttled_share <= self._profile.throttled_share:
            return 1.0
        full_mhz, clocks_mhz = self._profile.full_clock_mhz, self._samples.hot_clocks_mhz
        return median(clocks_mhz) / full_mhz if clocks_mhz and full_mhz else None

    @property
    def _slowdown(self) -> float:
        full_mhz, clocks_mhz = self._profile.full_clock_mhz, self._samples.hot_clocks_mhz
        if not (self._samples.throttled_share and clocks_mhz and full_mhz):
            return 1.0
        return max(1.0, full_mhz / min(clocks_mhz))

    def _wanted_factor(self, stale: bool) -> float:
        profile = self._profile
        if stale:
            return min(self._factor, profile.stale_factor)
        last = self._samples.last
        if self._open or (last is not None and last.hardware):
            return profile.floor
        value, least, most = self._clock, profile.floor_clock, profile.derate_below_clock
        if value is None:
            value = self._samples.slowdown_in_c
            least, most = profile.open_within_c, profile.derate_within_c
        if value is None:
            return 1.0
        room = min(max((value - least) / (most - least), 0.0), 1.0)
        return profile.floor + (1 - profile.floor) * room

    def _move(self, wanted: float, elapsed_s: float) -> None:
        lowest = self._factor - self._profile.lower_per_s * elapsed_s
        highest = self._factor + self._profile.raise_per_s * elapsed_s
        self._factor = min(max(wanted, lowest), highest)

    def _sentence(self, last: Sample, stale: bool) -> str:
        if stale:
            return "the GPU probe is silent"
        if not self._open and self._factor == 1:
            return ""
        left = "unknown" if last.slowdown_in_c is None else f"{last.slowdown_in_c:g} °C"
        slowed = "by hardware" if last.hardware else "by software" if last.hot else "no"
        return f"slowed by heat: {slowed}; left to the slowdown threshold: {left}"
