"""The small policies: the adaptive limit, the ladder, times to come back."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hunyuan_ocr.traffic.adaptive import AdaptiveLimit, LimitOptions
from hunyuan_ocr.traffic.degradation import Ladder, LadderOptions, Step
from hunyuan_ocr.traffic.retry import ReturnTimes

OPTIONS = LimitOptions(floor=4, ceiling=16)


def windows(
    limit: AdaptiveLimit, ratio: float, count: int, begin: float, *, in_use: bool = True
) -> None:
    """Pages for `count` windows of a second, ten in each."""
    for page in range(10 * count + 1):
        limit.observe(begin + page / 10, ratio, 1.0, in_use=in_use)


def test_a_slow_engine_gets_less_and_a_healthy_one_gets_it_back() -> None:
    limit = AdaptiveLimit(OPTIONS, 0.0)
    windows(limit, 1.0, 5, 0.0)
    assert limit.slots == 16
    windows(limit, 2.0, 3, 10.0)
    assert 8 < limit.slots < 12
    windows(limit, 2.0, 50, 20.0)
    assert limit.slots == 4
    windows(limit, 1.0, 20, 100.0)
    assert limit.slots == 16


def test_it_does_not_grow_while_nobody_needs_it() -> None:
    limit = AdaptiveLimit(OPTIONS, 0.0)
    windows(limit, 2.0, 10, 0.0)
    low = limit.slots
    windows(limit, 1.0, 20, 20.0, in_use=False)
    assert limit.slots == low


def test_overload_halves_it_once_for_all_pages_of_that_time() -> None:
    limit = AdaptiveLimit(OPTIONS, 0.0)
    for _ in range(16):
        limit.overloaded(10.0, started=9.0)
    assert limit.slots == 8
    limit.overloaded(11.0, started=10.5)
    assert limit.slots == 4


def test_a_static_limit_stays() -> None:
    limit = AdaptiveLimit(LimitOptions(floor=16, ceiling=16), 0.0)
    windows(limit, 5.0, 10, 0.0)
    limit.overloaded(20.0, started=19.0)
    assert limit.slots == 16


def test_derating_goes_below_the_floor_but_never_to_nothing() -> None:
    limit = AdaptiveLimit(OPTIONS, 0.0)
    limit.derate = 0.4
    assert limit.slots == pytest.approx(6.4)
    limit.derate = 0.01
    assert limit.slots == 1


@given(
    st.lists(
        st.tuples(st.floats(0, 10, allow_subnormal=False), st.floats(0.1, 10), st.booleans()),
        max_size=200,
    )
)
def test_the_limit_stays_between_its_bounds(steps: list[tuple[float, float, bool]]) -> None:
    limit, now = AdaptiveLimit(OPTIONS, 0.0), 0.0
    for seconds, ratio, fails in steps:
        now += seconds
        if fails:
            limit.overloaded(now, now)
        limit.observe(now, ratio, 1.0, in_use=True)
        assert 4 <= limit.slots <= 16


def press(ladder: Ladder, pressure: float, begin: float, seconds: int) -> Step:
    for second in range(seconds + 1):
        ladder.observe(begin + second, pressure)
    return ladder.step


def test_the_ladder_goes_up_step_by_step_and_down_more_slowly() -> None:
    ladder = Ladder(LadderOptions())
    assert press(ladder, 1.0, 0, 4) is Step.NORMAL
    assert press(ladder, 1.0, 4, 1) is Step.SHRINK_BATCH
    assert ladder.measures.batch_slots_max == 1
    assert ladder.measures.pixel_factor == 1
    assert press(ladder, 1.0, 6, 20) is Step.LOWER_PIXELS
    assert ladder.measures.pixel_factor == 0.5
    assert press(ladder, 0.0, 100, 20) is Step.SHRINK_BATCH
    assert ladder.measures.pixel_factor == 1
    assert press(ladder, 0.0, 121, 100) is Step.NORMAL
    assert ladder.measures.batch_slots_max == float("inf")


def test_the_ladder_does_not_swing() -> None:
    ladder = Ladder(LadderOptions())
    press(ladder, 1.0, 0, 5)
    for second in range(6, 200):
        ladder.observe(second, 1.0 if second % 4 < 2 else 0.0)
    assert ladder.step is Step.SHRINK_BATCH
    assert press(ladder, 0.6, 200, 500) is Step.SHRINK_BATCH


def test_the_ladder_stops_at_its_top() -> None:
    ladder = Ladder(LadderOptions(top=Step.SHRINK_BATCH))
    assert press(ladder, 1.0, 0, 100) is Step.SHRINK_BATCH


def test_those_sent_away_come_back_at_the_rate_of_the_engine() -> None:
    times = ReturnTimes(Random(1))
    told = sorted(times.next_s(0.0, "one", 2.0, 1.0, rate=10.0) for _ in range(200))
    for second in range(4, 20):
        assert sum(second <= t < second + 1 for t in told) <= 25
    assert told[-1] > 15


def test_times_to_come_back_are_bounded_and_shrink_with_time() -> None:
    times = ReturnTimes(Random(1))
    for _ in range(10_000):
        assert 1 <= times.next_s(0.0, "one", 2.0, 1.0, rate=1.0) <= 60
    assert times.next_s(100.0, "one", 0.0, 1.0, rate=1.0) < 3


def test_a_crowd_sent_away_at_once_is_spread_over_the_longest_times_too() -> None:
    times = ReturnTimes(Random(1))
    told = [times.next_s(100.0, str(n), 1.0, 0.4, rate=9.0) for n in range(5000)]
    assert max(Counter(map(round, told)).values()) < 500
    assert max(told) <= 60


def test_one_who_asks_again_and_again_has_a_long_way_back_alone() -> None:
    times = ReturnTimes(Random(1))
    now = 0.0
    for _ in range(3000):
        now += 0.001
        flood_s = times.next_s(now, "flood", 0.1, 0.4, rate=9.0)
    assert flood_s > 30
    assert times.next_s(now, "other", 0.1, 0.4, rate=9.0) < 3


def test_callers_sent_away_are_forgotten() -> None:
    times = ReturnTimes(Random(1))
    for number in range(20_000):
        times.next_s(number / 10, str(number), 0.1, 0.1, rate=9.0)
    assert len(times._until) < 1000
