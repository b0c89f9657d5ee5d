from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.intervals import quantile, quantile_interval, rate_interval, share_interval

VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=200).map(sorted)
SHARES = st.floats(0.01, 0.99)


@given(values=VALUES, share=SHARES)
@settings(deadline=None)
def test_a_quantile_is_a_value_that_the_share_does_not_exceed(
    values: list[float], share: float
) -> None:
    found = quantile(values, share)
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6
    assert sum(value < found for value in values) <= share * len(values) + 1e-6
    low, high = quantile_interval(values, share)
    assert low <= found <= high


@given(count=st.integers(0, 10_000), data=st.data())
@settings(deadline=None)
def test_a_share_lies_in_its_interval(count: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, count))
    low, high = share_interval(hits, count)
    assert 0 <= low <= high <= 1
    if count:
        assert low <= hits / count <= high


def test_more_requests_make_a_share_surer() -> None:
    widths = [high - low for low, high in (share_interval(n // 20, n) for n in (20, 200, 2000))]
    assert all(a > b for a, b in pairwise(widths))


def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    rng = random.Random(1)
    p95 = rate = 0
    for _ in range(400):
        latencies = sorted(rng.expovariate(1) for _ in range(200))
        low, high = quantile_interval(latencies, 0.95)
        p95 += low <= 2.9957 <= high
        at, events = 0.0, []
        while (at := at + rng.expovariate(10)) < 30:
            events.append(at)
        low, high = rate_interval(events, 10, 30)
        rate += low <= 10 <= high
    assert p95 / 400 == pytest.approx(0.95, abs=0.04)
    assert rate / 400 == pytest.approx(0.95, abs=0.04)


def test_answers_in_lockstep_are_surer_than_at_random() -> None:
    low, high = rate_interval([n / 10 for n in range(1000)], 10, 50)
    assert low == pytest.approx(10)
    assert high == pytest.approx(10)
