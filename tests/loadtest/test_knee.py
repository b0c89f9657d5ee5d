"""Where the curve bends, on curves whose bend is known."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.fake_law import Law
from loadtest.knee import Knee, NoKnee, Point, find_knee

LEVELS = (1, 2, 4, 8, 11, 16, 22, 32, 64, 128)
KNEES = st.floats(5, 50)
GROWTHS = st.floats(0.75, 1.0)
TAILS = st.floats(-0.2, 0.12)
SEEDS = st.integers(0, 10_000)


def curve(law: Law, seed: int | None = None, answers: int = 400) -> list[Point]:
    """What levels bring, with the scatter of so many answers where there is a seed."""
    rng = random.Random(seed)
    scatter = 0.0 if seed is None else 1 / math.sqrt(answers)
    return [
        Point(level, law.rate(level) * math.exp(rng.gauss(0, scatter)), answers) for level in LEVELS
    ]


@given(knee=KNEES, growth=GROWTHS, tail=TAILS)
@settings(deadline=None, max_examples=25)
def test_a_sharp_corner_is_found_where_it_is(knee: float, growth: float, tail: float) -> None:
    found = find_knee(curve(Law(0.5, knee, growth, tail)))
    assert isinstance(found, Knee)
    assert found.load == pytest.approx(knee, rel=0.05)
    assert found.low <= found.load <= found.high
    assert found.growth == pytest.approx(growth, abs=0.05)
    assert found.tail == pytest.approx(tail, abs=0.05)


@given(knee=KNEES, sharpness=st.floats(4, 40))
@settings(deadline=None, max_examples=25)
def test_a_round_corner_is_where_its_lines_meet(knee: float, sharpness: float) -> None:
    law = Law(0.5, knee, sharpness=sharpness)
    found = find_knee(curve(law))
    assert isinstance(found, Knee)
    assert found.load == pytest.approx(knee, rel=0.1)
    assert found.per_s == pytest.approx(knee / law.service_s, rel=0.1)


@given(seed=SEEDS, knee=st.floats(5, 30))  # with two levels behind it, scatter looks like growth
@settings(deadline=None, max_examples=25)
def test_scatter_moves_it_as_little_as_the_interval_says(seed: int, knee: float) -> None:
    found = find_knee(curve(Law(0.5, knee), seed))
    assert isinstance(found, Knee)
    # Twice as far as 95 % allow: it is asked of every example.
    assert found.low / (found.high / found.low) <= knee <= found.high * (found.high / found.low)


@given(seed=SEEDS, growth=st.one_of(st.floats(0.45, 1.0), st.floats(0.0, 0.25)))
@settings(deadline=None, max_examples=60)
def test_one_power_of_the_load_has_no_knee(seed: int, growth: float) -> None:
    assert isinstance(find_knee(curve(Law(0.5, growth=growth), seed)), NoKnee)


@given(seed=SEEDS, load=st.floats(0.01, 100), rate=st.floats(0.01, 100))
@settings(deadline=None, max_examples=10)
def test_units_change_the_numbers_and_not_the_knee(seed: int, load: float, rate: float) -> None:
    points = curve(Law(0.5, 16), seed)
    found = find_knee(points)
    other = find_knee([replace(p, load=p.load * load, per_s=p.per_s * rate) for p in points])
    assert isinstance(found, Knee)
    assert isinstance(other, Knee)
    assert other.load == pytest.approx(found.load * load, rel=0.02)
    assert other.per_s == pytest.approx(found.per_s * rate, rel=0.02)


@given(seed=SEEDS)
@settings(deadline=None, max_examples=10)
def test_the_order_of_steps_does_not_matter(seed: int) -> None:
    points = curve(Law(0.5, 16), seed)
    shuffled = random.Random(seed).sample(points, len(points))
    assert find_knee(shuffled) == find_knee(points)


def test_published_figures_of_vllm_bend_between_16_and_32() -> None:
    """Doubling beyond 16 in flight brought a quarter more, and then nothing."""
    per_s = {1: 1.2, 2: 2.3, 4: 4.4, 8: 7.6, 16: 10.9, 32: 12.6, 64: 13.1, 128: 13.2}
    found = find_knee([Point(load, rate, round(rate * 60)) for load, rate in per_s.items()])
    assert isinstance(found, Knee)
    assert 8 <= found.load <= 16


def test_a_collapse_behind_the_knee_does_not_move_it() -> None:
    points = [p if p.load < 64 else replace(p, per_s=p.per_s / 10) for p in curve(Law(0.5, 16))]
    found = find_knee(points)
    assert isinstance(found, Knee)
    assert found.load == pytest.approx(16, rel=0.05)


def test_levels_without_answers_are_no_points() -> None:
    points = [p if p.load < 64 else replace(p, per_s=0.0, answers=0) for p in curve(Law(0.5, 16))]
    assert isinstance(find_knee(points), Knee)


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ([], "0 levels"),
        (curve(Law(0.5, 16))[:4], "4 levels"),
        (curve(Law(0.5)), "still grew"),
        (curve(Law(0.5, growth=0.0)), "full there already"),
        (curve(Law(0.5, growth=0.6)), "still grew"),
    ],
)
def test_no_knee_says_why(points: list[Point], why: str) -> None:
    found = find_knee(points)
    assert isinstance(found, NoKnee)
    assert why in found.why
