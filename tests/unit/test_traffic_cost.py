"""Costs: what is slow reads as slow for good, and what is merely different does not."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hunyuan_ocr.traffic.calibration import calibrated, solve
from hunyuan_ocr.traffic.cost import (
    CostModel,
    Reference,
    Sample,
    Speed,
    WaitScale,
    Work,
)
from hunyuan_ocr.traffic.outputs import OutputTokens

PRIOR = Speed(0.02, 20e-6, 0.02, 0.0024, contention=0.05)
TRUE = Speed(0.035, 30e-6, 0.006, 0.003, contention=0.08)
SMALL = Work(274, 1024, 30)
LARGE = Work(4106, 16384, 900)
SECONDS_PER_PAGE = 0.5


def served(speed: Speed, work: Work, load: float, rng: Random, *, slow: float = 1.0) -> Sample:
    return Sample(work, load, slow * speed.service_s(work, load) * rng.lognormvariate(0, 0.15))


def calibration(rng: Random) -> Speed:
    works = [Work(t, 4 * t, o) for t in (274, 794, 2202) for o in (16, 100, 400)]
    return calibrated(PRIOR, [served(TRUE, w, load, rng) for w in works for load in (0.0, 12.0)])


def an_hour(reference: Reference, mix: list[Work], rng: Random, *, slow: float = 1.0) -> float:
    """Serve pages for an hour; the mean of measured / reference over its last minutes."""
    ratios = []
    for page in range(int(3600 / SECONDS_PER_PAGE)):
        sample = served(TRUE, rng.choice(mix), rng.uniform(0, 15), rng, slow=slow)
        ratios.append(reference.ratio(sample))
        reference.observe(page * SECONDS_PER_PAGE, sample)
    return sum(ratios[-1000:]) / 1000


@pytest.mark.parametrize("seed", range(3))
def test_an_engine_three_times_as_slow_reads_as_slow_after_an_hour_of_it(seed: int) -> None:
    rng = Random(seed)
    reference = Reference(calibration(rng))
    assert an_hour(reference, [SMALL], rng) == pytest.approx(1, abs=0.2)
    assert an_hour(reference, [SMALL], rng, slow=3.0) > 2.4


def test_it_reads_as_slow_after_any_time() -> None:
    rng = Random(1)
    reference = Reference(TRUE)
    for hour in range(1000):
        for second in (0, 9, 18):
            sample = served(TRUE, SMALL, 0, rng, slow=3.0)
            reference.observe(hour * 30.0 + second, sample)
    assert reference.ratio(Sample(SMALL, 0, 3 * TRUE.alone_s(SMALL))) > 2


@pytest.mark.parametrize("seed", range(3))
def test_other_pages_do_not_read_as_slow(seed: int) -> None:
    rng = Random(seed)
    reference = Reference(calibration(rng))
    for mix in ([SMALL], [LARGE], [SMALL, LARGE]):
        assert an_hour(reference, mix, rng) == pytest.approx(1, abs=0.25)


def test_the_reference_adapts_over_hours() -> None:
    """An engine that is a little slower than when it was calibrated becomes the new health."""
    rng = Random(1)
    reference = Reference(TRUE.scaled(1 / 1.08))
    ratios = [an_hour(reference, [SMALL, LARGE], rng) for _ in range(8)]
    assert ratios[0] > 1.05
    assert ratios[-1] == pytest.approx(1, abs=0.03)


def test_doubtful_samples_leave_the_reference_alone() -> None:
    rng = Random(1)
    model = CostModel(TRUE, slot_tokens=2048)
    for page in range(3000):
        sample = served(TRUE, SMALL, 4, rng, slow=1.5)
        model.observe(page / 10, sample, trusted=False)
    assert model.reference.drift == 1
    assert model.scale.factor == pytest.approx(1.5, rel=0.1)


def test_waits_follow_the_engine_within_seconds() -> None:
    rng = Random(1)
    model = CostModel(TRUE, slot_tokens=2048)
    healthy = model.drain_rate(16)
    for page in range(200):
        sample = served(TRUE, SMALL, 15, rng, slow=3.0)
        model.observe(page / 10, sample, trusted=True)
    assert model.drain_rate(16) == pytest.approx(healthy / 3, rel=0.15)
    assert model.reference.drift < 1.01


def test_a_silent_engine_is_expected_to_be_healthy_again() -> None:
    scale = WaitScale()
    for second in range(20):
        scale.observe(float(second), 1.0, 5.0)
    assert scale.factor > 3
    scale.observe(600.0, 1.0, 1.0)
    assert scale.factor == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_calibration_finds_the_engine(seed: int) -> None:
    speed = calibration(Random(seed))
    for work in (SMALL, Work(1058, 4096, 250), LARGE):
        for load in (0.0, 8.0, 15.0):
            assert speed.service_s(work, load) == pytest.approx(TRUE.service_s(work, load), rel=0.3)


def test_calibration_needs_no_pages_alone() -> None:
    rng = Random(1)
    speed = calibrated(PRIOR, [served(TRUE, SMALL, 12.0, rng) for _ in range(20)])
    assert speed.service_s(SMALL, 12.0) == pytest.approx(TRUE.service_s(SMALL, 12.0), rel=0.2)


@given(
    st.integers(66, 9000),
    st.integers(256, 40000),
    st.integers(1, 4096),
    st.sampled_from(["visual_tokens", "vit_patches", "output_tokens"]),
)
def test_more_work_costs_more(visual: int, patches: int, output: int, part: str) -> None:
    model = CostModel(TRUE, slot_tokens=2048)
    work = Work(visual, patches, output)
    more = replace(work, **{part: getattr(work, part) * 2})
    assert model.price(more).cost > model.price(work).cost
    assert model.price(work).slots >= 1


def test_a_page_that_fills_more_of_the_cache_holds_more_slots() -> None:
    model = CostModel(TRUE, slot_tokens=2048)
    assert model.price(Work(1058, 4096, 300)).slots == 1
    assert model.price(Work(8692, 36864, 1000)).slots == pytest.approx(9692 / 2048)


def test_no_page_holds_more_than_the_engine_has() -> None:
    model = CostModel(TRUE, slot_tokens=2048, slots_max=16)
    price = model.price(Work(100_000, 0, 128))
    assert price.slots == 16
    assert price.cost == pytest.approx(16 * price.alone_s)


def test_answers_teach_their_length() -> None:
    lengths = OutputTokens(500)
    assert lengths.value == 500
    for tokens in range(1000):
        lengths.observe(tokens % 100)
    assert 80 <= lengths.value <= 160
    for _ in range(256):
        lengths.observe(1000)
    assert lengths.value > 900


@given(
    st.lists(st.floats(-5, 5, allow_subnormal=False), min_size=9, max_size=9),
    st.lists(st.floats(-5, 5, allow_subnormal=False), min_size=3, max_size=3),
)
def test_solves_positive_definite_systems(numbers: list[float], x: list[float]) -> None:
    b = [numbers[:3], numbers[3:6], numbers[6:]]
    matrix = [
        [sum(b[k][i] * b[k][j] for k in range(3)) + (i == j) for j in range(3)] for i in range(3)
    ]
    right = [sum(matrix[i][j] * x[j] for j in range(3)) for i in range(3)]
    assert solve(matrix, right) == pytest.approx(x, abs=1e-6)


def test_a_long_answer_is_no_slow_engine() -> None:
    model = CostModel(TRUE, slot_tokens=2048)
    long = Work(SMALL.visual_tokens, SMALL.vit_patches, 4096)
    model.observe(0.0, Sample(long, 0.0, TRUE.service_s(long, 0.0)), trusted=True)
    assert model.scale.factor == pytest.approx(1)


def test_one_page_that_hung_for_minutes_does_not_outweigh_the_others() -> None:
    scale = WaitScale()
    for page in range(120):
        scale.observe(page / 12, 1.0, 1.0)
    scale.observe(10.0, 1.0, 600.0)
    assert 1 < scale.factor < 1.5
