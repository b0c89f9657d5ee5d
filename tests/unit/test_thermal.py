"""What the thermal policy makes of a card's readings, good, bad, stale and none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hunyuan_ocr.traffic.thermal import RTX_4090_D, Assessment, ThermalPolicy, ThermalProfile

FULL_MHZ = 2520.0
MARGINS_ONLY = ThermalProfile()
SOFTWARE = frozenset({"software_thermal"})
HARDWARE = frozenset({"software_thermal", "hardware_thermal", "hardware_slowdown"})


@dataclass(frozen=True)
class Reading:
    """As an RTX 4090 tells them: slowdown at 84 °C. Throttled all the time where a reason says."""

    temperature_c: float | None = 60.0
    slowdown_in_c: float | None = 24.0
    reasons: frozenset[str] = frozenset()
    throttled_ns: int | None = None
    sm_clock_mhz: float | None = FULL_MHZ
    age_s: float = 0.0


COOL = Reading()
AT_TARGET = Reading(83.0, 1.0, SOFTWARE, sm_clock_mhz=0.9 * FULL_MHZ)
STRUGGLING = Reading(83.0, 1.0, SOFTWARE, sm_clock_mhz=0.35 * FULL_MHZ)
SPENT = Reading(83.0, 1.0, SOFTWARE, sm_clock_mhz=0.25 * FULL_MHZ)
CUT = Reading(85.0, -1.0, HARDWARE, sm_clock_mhz=0.2 * FULL_MHZ)
SILENT = None


class Heard:
    """A policy that hears a reading a second."""

    def __init__(self, profile: ThermalProfile = RTX_4090_D) -> None:
        self.policy = ThermalPolicy(profile)
        self.now = 0.0

    def each(self, readings: Iterable[Reading | None]) -> Iterator[Assessment]:
        for reading in readings:
            self.now += 1.0
            yield self.policy.observe(self.now, reading)

    def last(self, readings: Iterable[Reading | None]) -> Assessment:
        return list(self.each(readings))[-1]


def counted(readings: Iterable[Reading], share: float) -> Iterator[Reading]:
    """The same with a counter that says the card was throttled for `share` of the time."""
    for second, reading in enumerate(readings):
        yield replace(reading, throttled_ns=int(second * share * 1e9))


def test_a_card_at_its_target_temperature_is_never_derated() -> None:
    """83 °C on a card whose margin ends at 82 and slowdown begins at 84, clock 10 % lower."""
    jitter = [replace(AT_TARGET, temperature_c=83 + d, slowdown_in_c=1 - d) for d in (0, 1, 0, -1)]
    for assessment in Heard().each(jitter * 900):
        assert (assessment.factor, assessment.open, assessment.stale) == (1.0, False, False)


def test_a_warm_card_with_no_throttling_is_not_derated() -> None:
    warm = replace(COOL, temperature_c=82.0, slowdown_in_c=2.0)
    for profile in (RTX_4090_D, MARGINS_ONLY):
        assert Heard(profile).last([warm] * 60).factor == 1.0


def test_power_cap_is_no_heat() -> None:
    capped = replace(COOL, reasons=frozenset({"power_cap"}), sm_clock_mhz=0.3 * FULL_MHZ)
    assert Heard().last([capped] * 60) == Assessment()


def test_heat_that_takes_most_of_the_clock_derates_smoothly_down_to_the_floor() -> None:
    factors = [a.factor for a in Heard().each([STRUGGLING] * 60)]
    assert factors[-1] == RTX_4090_D.floor
    assert all(0 <= a - b <= RTX_4090_D.lower_per_s + 1e-9 for a, b in pairwise(factors))
    assert not Heard().last([STRUGGLING] * 600).open


def test_it_is_raised_again_within_a_minute_of_cooling() -> None:
    heard = Heard()
    assert heard.last([STRUGGLING] * 60).factor == RTX_4090_D.floor
    factors = [a.factor for a in heard.each([COOL] * 60)]
    assert factors[-1] == 1.0
    assert all(b - a <= RTX_4090_D.raise_per_s + 1e-9 for a, b in pairwise(factors))


@pytest.mark.parametrize(("share", "derated"), [(0.04, False), (0.5, True)])
def test_throttled_for_less_than_a_twentieth_is_nothing(share: float, derated: bool) -> None:
    heard = Heard()
    assert (heard.last(counted([STRUGGLING] * 60, share)).factor < 1) is derated


def test_the_counter_sees_what_falls_between_samples() -> None:
    between = replace(STRUGGLING, reasons=frozenset())
    assert Heard().last(counted([between] * 60, 0.3)).factor < 1


def test_a_counter_that_begins_anew_is_no_throttling() -> None:
    falling = [replace(STRUGGLING, throttled_ns=1_000_000_000 * (1000 - n)) for n in range(60)]
    assert Heard().last(falling).factor == 1.0


@pytest.mark.parametrize("reading", [CUT, SPENT, replace(CUT, slowdown_in_c=None)])
def test_three_alarms_in_a_row_open_it_and_two_do_not(reading: Reading) -> None:
    heard = Heard()
    opened = [a.open for a in heard.each([COOL] * 10 + [reading] * 2 + [COOL] + [reading] * 3)]
    assert opened == [False] * 15 + [True]


def test_beyond_the_threshold_it_opens_whatever_the_clock() -> None:
    assert Heard().last([replace(AT_TARGET, slowdown_in_c=-1.0)] * 3).open


def test_without_a_clock_margins_decide_once_the_card_is_throttled() -> None:
    blind = replace(AT_TARGET, sm_clock_mhz=None, slowdown_in_c=2.0)
    assert 0.4 < Heard().last([blind] * 60).factor < 1
    assert Heard().last([replace(blind, slowdown_in_c=1.0)] * 3).open
    assert Heard(MARGINS_ONLY).last([AT_TARGET] * 3).open


def test_open_until_it_has_been_cool_for_thirty_seconds() -> None:
    heard = Heard()
    assert heard.last([CUT] * 5).open
    warm = replace(COOL, temperature_c=78.0, slowdown_in_c=6.0)
    assert heard.last([warm] * 600).open
    opened = [a.open for a in heard.each([COOL] * 40)]
    assert 30 <= opened.count(True) <= 32
    assert opened == sorted(opened, reverse=True)


@pytest.mark.parametrize("wrong", [0.0, 255.0, -40.0])
def test_wrong_temperatures_are_no_readings(wrong: float) -> None:
    """Not heat, not cold; and after five seconds of nothing else, an alert."""
    heard = Heard()
    bad = Reading(wrong, 84 - wrong, HARDWARE)
    assert heard.last([COOL] * 20) == Assessment()
    assert [a.stale for a in heard.each([bad] * 6)] == [False] * 5 + [True]
    hot = Heard()
    assert hot.last([CUT] * 5).open
    assert all(a.open for a in hot.each([Reading(wrong, 84 - wrong)] * 40))


@pytest.mark.parametrize("spike", [CUT, SPENT, replace(COOL, slowdown_in_c=-171.0)])
def test_one_spike_does_nothing(spike: Reading) -> None:
    for assessment in Heard().each(([COOL] * 29 + [spike]) * 4):
        assert not assessment.open
        assert assessment.factor >= 1 - 2 * RTX_4090_D.lower_per_s


def test_no_source_means_no_limit_and_no_alert() -> None:
    assert set(Heard().each([SILENT] * 600)) == {Assessment()}
    mute = Reading(None, None, sm_clock_mhz=None)
    assert set(Heard().each([mute] * 600)) == {Assessment()}


def test_a_source_that_falls_silent_is_neither_hot_nor_cool() -> None:
    heard = Heard()
    heard.last([COOL] * 20)
    silence = list(heard.each([SILENT] * 120))
    assert [a.stale for a in silence[:6]] == [False] * 5 + [True]
    assert silence[-1].factor == RTX_4090_D.stale_factor
    assert not any(a.open for a in silence)
    assert heard.last([COOL] * 60) == Assessment()


def test_silence_does_not_raise_what_heat_lowered() -> None:
    heard = Heard()
    heard.last([STRUGGLING] * 60)
    assert heard.last([SILENT] * 600).factor == RTX_4090_D.floor


def test_silence_keeps_it_open_for_a_minute_only() -> None:
    heard = Heard()
    heard.last([CUT] * 5)
    opened = [a.open for a in heard.each([SILENT] * 120)]
    assert opened == [True] * 60 + [False] * 60


def test_a_file_that_is_no_longer_written_is_stale() -> None:
    heard = Heard()
    heard.last([COOL] * 20)
    old = [replace(COOL, age_s=float(n)) for n in range(1, 10)]
    assert [a.stale for a in heard.each(old)] == [False] * 5 + [True] * 4


def test_one_sample_read_three_times_is_one_alarm() -> None:
    policy = ThermalPolicy(RTX_4090_D)
    for tenth in range(10):
        assessment = policy.observe(100 + tenth / 10, replace(CUT, age_s=0.1 + tenth / 10))
    assert not assessment.open


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_a_clock_that_jumps_is_no_heat(jump_s: float) -> None:
    heard = Heard()
    heard.last([COOL] * 20)
    heard.now += jump_s
    for assessment in heard.each([COOL] * 20):
        assert (assessment.factor, assessment.open, assessment.stale) == (1.0, False, False)


READINGS = st.one_of(
    st.none(),
    st.builds(
        Reading,
        temperature_c=st.one_of(st.none(), st.sampled_from([0.0, 40.0, 83.0, 86.0, 255.0])),
        slowdown_in_c=st.one_of(st.none(), st.integers(-10, 50).map(float)),
        reasons=st.sampled_from([frozenset(), SOFTWARE, HARDWARE, frozenset({"power_cap"})]),
        throttled_ns=st.one_of(st.none(), st.integers(0, 10**11)),
        sm_clock_mhz=st.one_of(st.none(), st.floats(0.0, 3000.0, allow_subnormal=False)),
        age_s=st.sampled_from([0.0, 0.2, 3.0, 3600.0]),
    ),
)
STEPS_S = st.sampled_from([0.1, 1.0, 1.0, 1.0, 7.0, 3600.0, -1.0, -3600.0])


@given(st.lists(st.tuples(STEPS_S, READINGS), max_size=60))
def test_whatever_is_read(history: list[tuple[float, Reading | None]]) -> None:
    """Bounded, never opened by silence, and an alert whenever nothing new came for long."""
    policy = ThermalPolicy(RTX_4090_D)
    now, before = 0.0, Assessment()
    for step_s, reading in history:
        now += step_s
        assessment = policy.observe(now, reading)
        assert RTX_4090_D.floor - 1e-9 <= assessment.factor <= 1.0
        assert assessment.slowdown >= 1.0
        if assessment.stale:
            assert before.open or not assessment.open
            assert assessment.factor <= before.factor
        if assessment.open or assessment.stale:
            assert assessment.sentence
        before = assessment


@given(
    st.lists(st.tuples(st.integers(0, 20), st.floats(0.2, 1.0)), min_size=30, max_size=60),
    st.integers(0, 5),
    st.floats(0.0, 0.2, allow_subnormal=False),
)
def test_more_heat_never_means_more_work(
    seconds: list[tuple[int, float]], hotter_c: int, slower: float
) -> None:
    def limits(warmer_c: int, lost: float) -> list[tuple[float, bool]]:
        readings = [
            Reading(84.0 - left, float(left) - warmer_c, SOFTWARE, None, (clock - lost) * FULL_MHZ)
            for left, clock in seconds
        ]
        return [(a.factor, not a.open) for a in Heard().each(readings)]

    for cooler, hotter in zip(limits(0, 0.0), limits(hotter_c, slower), strict=True):
        assert hotter[0] <= cooler[0] + 1e-9
        assert hotter[1] <= cooler[1]


def test_a_counter_that_was_away_for_a_sample_is_no_throttling() -> None:
    """Of two that are added up one is missing, and then there again with all it ever counted."""
    sums = [5_000_000_000_000] * 20 + [0] + [5_000_000_000_000] * 5
    readings = [replace(STRUGGLING, reasons=frozenset(), throttled_ns=ns) for ns in sums]
    heard = Heard()
    assert heard.last(readings[:20]).factor == 1.0
    assert min(a.factor for a in heard.each(readings[20:])) >= 0.9
