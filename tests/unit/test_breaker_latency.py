"""The latency trip on the service's own reference model: what is slow, and what is only large."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hunyuan_ocr.traffic.breaker import Breaker
from hunyuan_ocr.traffic.breaker_states import BreakerOptions, Outcome, Reason, State, Transition
from hunyuan_ocr.traffic.calibration import PRIOR
from hunyuan_ocr.traffic.cost import Reference, Sample, Work
from hunyuan_ocr.traffic.latency_trip import LatencyOptions, LatencyTrip

TRIP = LatencyTrip(LatencyOptions())
SMALL = Work(visual_tokens=300, vit_patches=1024, output_tokens=60)
LARGE = Work(visual_tokens=4000, vit_patches=16384, output_tokens=1200)
MIDDLE = Work(visual_tokens=1000, vit_patches=4096, output_tokens=120)
IN_FLIGHT = 16
STEP_S = 0.05
NOISE = 0.25


class Engine:
    """Keeps sixteen pages in flight, each as long as the reference says, with noise.

    The reference learns from what is answered while the breaker is closed, as the service lets it.
    """

    def __init__(self, seed: int = 1) -> None:
        self.opened: list[float] = []
        self.breaker = Breaker(BreakerOptions(), self._heard)
        self.reference = Reference(PRIOR)
        self.slowness = 1.0
        self.now = 0.0
        self._rng = Random(seed)
        self._left_s = [0.0] * IN_FLIGHT
        self._begun = [0.0] * IN_FLIGHT
        self._works = [SMALL] * IN_FLIGHT

    def read(self, work: Work, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            for slot in range(IN_FLIGHT):
                self._left_s[slot] -= STEP_S / self.slowness
                if self._left_s[slot] <= 0:
                    self._answer(self._works[slot], self.now - self._begun[slot])
                    noise = self._rng.lognormvariate(0, NOISE)
                    self._left_s[slot] = PRIOR.service_s(work, IN_FLIGHT - 1) * noise
                    self._begun[slot], self._works[slot] = self.now, work

    def _answer(self, work: Work, service_s: float) -> None:
        permit = self.breaker.acquire(self.now)
        if permit is None:
            return
        sample = Sample(work, IN_FLIGHT - 1, service_s)
        slow = TRIP.is_slow(service_s, self.reference.expected_s(sample))
        if self.breaker.state is State.CLOSED:
            self.reference.observe(self.now, sample)
        permit.settle(self.now, Outcome.OK, slow=slow)

    def _heard(self, transition: Transition) -> None:
        assert transition.reason is Reason.LATENCY
        if transition.after is State.OPEN:
            self.opened.append(self.now)


def test_a_burst_of_large_pages_never_trips() -> None:
    engine = Engine()
    engine.read(SMALL, 60)
    engine.read(LARGE, 300)
    engine.read(SMALL, 60)
    assert engine.opened == []


@pytest.mark.parametrize("work", [SMALL, MIDDLE])
def test_a_threefold_slow_down_trips_within_thirty_seconds(work: Work) -> None:
    engine = Engine()
    engine.read(work, 120)
    engine.slowness = 3.0
    began = engine.now
    engine.read(work, 30)
    assert 0 < engine.opened[0] - began <= 30


def test_pages_that_take_twenty_seconds_each_trip_when_the_window_is_full_of_them() -> None:
    engine = Engine()
    engine.read(LARGE, 120)
    engine.slowness = 3.0
    began = engine.now
    engine.read(LARGE, 90)
    assert engine.opened[0] - began <= 30 + 3 * PRIOR.service_s(LARGE, IN_FLIGHT - 1)


def test_a_lasting_slow_down_is_still_seen_after_an_hour() -> None:
    """It is tried again about every two minutes, and found slow again."""
    engine = Engine()
    engine.read(MIDDLE, 60)
    engine.slowness = 3.0
    engine.read(MIDDLE, 3600)
    assert engine.now - engine.opened[-1] < 150
    engine.slowness = 1.0
    engine.read(MIDDLE, 180)
    assert engine.breaker.state is State.CLOSED


def test_an_hour_that_the_reference_learns_from_changes_nothing() -> None:
    """Even with samples that ought not to have reached it."""
    reference = Reference(PRIOR)
    for second in range(3600):
        expected_s = PRIOR.service_s(LARGE, IN_FLIGHT - 1)
        reference.observe(second, Sample(LARGE, IN_FLIGHT - 1, 3 * expected_s))
    sample = Sample(LARGE, IN_FLIGHT - 1, 3 * PRIOR.service_s(LARGE, IN_FLIGHT - 1))
    assert TRIP.is_slow(sample.service_s, reference.expected_s(sample))


def test_slowness_that_heat_explains_is_not_the_engines() -> None:
    assert TRIP.is_slow(6.0, 2.0)
    assert not TRIP.is_slow(6.0, 2.0, slowdown=2.5)
    assert TRIP.is_slow(12.0, 2.0, slowdown=2.5)


@given(st.floats(0.001, 0.4), st.floats(0.001, 0.24))
def test_what_no_caller_notices_is_not_slow(reference_s: float, excess_s: float) -> None:
    assert not TRIP.is_slow(reference_s + excess_s, reference_s)
    assert not TRIP.is_first_token_slow(reference_s + excess_s, reference_s)


def test_first_token_has_a_wider_bound() -> None:
    assert not TRIP.is_first_token_slow(2.5, 1.0)
    assert TRIP.is_first_token_slow(3.5, 1.0)
