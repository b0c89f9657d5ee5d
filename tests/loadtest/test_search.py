"""Which levels are measured: every one is new, and those that matter are among them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.fake_law import Law
from loadtest.knee import Point
from loadtest.search import Measured, Range, next_level
from loadtest.slo import Boundary, Slo, boundary

LAWS = st.builds(
    Law,
    service_s=st.floats(0.1, 2),
    knee=st.one_of(st.floats(1, 300), st.just(float("inf"))),
    growth=st.floats(0, 1),
)


def searched(law: Law, slo: Slo, limits: Range) -> list[Measured]:
    """Every level that is measured, without scatter."""
    measured: list[Measured] = []
    while (level := next_level(limits, measured)) is not None:
        p95_s = law.latency_quantile_s(round(level), 0.95)
        point = Point(level, law.rate(round(level)), 500)
        measured.append(Measured(point, slo.holds(p95_s, 0.0)))
        assert len(measured) < 60
    return measured


@given(law=LAWS, patience=st.floats(0.5, 20))
@settings(deadline=None, max_examples=15)
def test_it_ends_and_repeats_nothing(law: Law, patience: float) -> None:
    measured = searched(law, Slo(law.service_s * patience), Range(1, 128))
    levels = [one.point.load for one in measured]
    assert len(levels) == len(set(levels))
    assert all(1 <= level <= 128 and level == int(level) for level in levels)


@given(knee=st.floats(4, 60), patience=st.floats(2, 6))
@settings(deadline=None, max_examples=10)
def test_the_promise_breaks_between_neighbours(knee: float, patience: float) -> None:
    law = Law(0.5, knee)
    measured = searched(law, Slo(law.service_s * patience), Range(1, 512))
    edge = boundary((one.point.load, one.held) for one in measured)
    assert edge.passed is not None
    assert edge.failed is not None
    assert edge.failed - edge.passed <= max(1, 0.12 * edge.passed + 1)


@given(knee=st.floats(6, 60))
@settings(deadline=None, max_examples=8)
def test_the_corner_is_looked_at_from_both_sides(knee: float) -> None:
    levels = [one.point.load for one in searched(Law(0.5, knee), Slo(2.0), Range(1, 128))]
    assert sum(knee / 2.1 <= level < knee for level in levels) >= 2
    assert sum(knee < level <= knee * 2.1 for level in levels) >= 2


def test_a_dead_server_is_not_asked_again() -> None:
    dead = [Measured(Point(1, 0.0, 0), held=False)]
    assert next_level(Range(1, 128), dead) is None


def test_the_last_level_is_measured_where_nothing_bends() -> None:
    levels = [one.point.load for one in searched(Law(0.5), Slo(9.0), Range(1, 100))]
    assert levels == [1, 2, 4, 8, 16, 32, 64, 100]


def test_rates_are_not_rounded_to_whole_ones() -> None:
    assert next_level(Range(0.5, 4, whole=False), []) == 0.5


def test_a_level_holds_where_all_its_repeats_do() -> None:
    steps = [(8.0, True), (16.0, True), (16.0, False), (32.0, True)]
    assert boundary(steps) == Boundary(8.0, 16.0)
    assert boundary([(8.0, False), (16.0, True)]) == Boundary(None, 8.0)
    assert boundary([(8.0, True)]) == Boundary(8.0, None)
