"""The service before the card in virtual time: pages that wait, share the engine, and are late.

A page is refused where it could not be done in its time, and lost where it is not. With a guard,
the real thermal policy, latency trip and breaker decide how many pages may be in flight.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random

from benchmarks.heatwave.card import Sample
from hunyuan_ocr.traffic.breaker import Breaker
from hunyuan_ocr.traffic.breaker_states import (
    BreakerOptions,
    Outcome,
    Permit,
    Reason,
    State,
    Transition,
)
from hunyuan_ocr.traffic.latency_trip import LatencyOptions, LatencyTrip
from hunyuan_ocr.traffic.thermal import RTX_4090_D, Assessment, ThermalPolicy, ThermalProfile

_TIMEOUT_S = 30.0
_SIGMA = 0.5
_RATE_TIME_CONSTANT_S = 10.0


@dataclass(frozen=True, slots=True)
class Load:
    """Of n pages in flight the engine answers `most` * n / (n + `half_at`) a second: the published
    22 at 16 and 26 at 32.

    `clock_bound`: the part of a page's time that goes with the clock; guess. `offered`: pages
    that come, in parts of what `slots` do on a cool card.
    """

    slots: int = 16
    most: float = 31.8
    half_at: float = 7.1
    clock_bound: float = 0.7
    offered: float = 1.2

    def pages_per_s(self, in_flight: int) -> float:
        return self.most * in_flight / (in_flight + self.half_at)

    def speed(self, clock: float) -> float:
        """1 on a cool card."""
        return 1 / (1 - self.clock_bound + self.clock_bound / clock)


@dataclass(eq=False, slots=True)
class _Page:
    """`left` of its work, 1 in the mean; what reading it took, and should have."""

    sent: float
    left: float
    permit: Permit | None = None
    measured_s: float = 0.0
    reference_s: float = 0.0


class Guard:
    """Policy, trip and breaker as the service wires them."""

    def __init__(self, profile: ThermalProfile = RTX_4090_D) -> None:
        self.transitions: list[Transition] = []
        self.breaker = Breaker(BreakerOptions(), self.transitions.append)
        self.trip = LatencyTrip(LatencyOptions())
        self.assessment = Assessment()
        self._policy = ThermalPolicy(profile)

    def hear(self, now: float, sample: Sample) -> None:
        self.assessment = self._policy.observe(now, sample)
        if self.assessment.open:
            self.breaker.hold(now, Reason.THERMAL, self.assessment.sentence)
        else:
            self.breaker.release(now, Reason.THERMAL)
        if self.assessment.warm:
            self.breaker.prolong_trial(now)


class Service:
    """`answered` counts pages that were answered in their time."""

    def __init__(self, load: Load, guard: Guard | None, rng: Random) -> None:
        self._load = load
        self._guard = guard
        self._rng = rng
        self._waiting: deque[_Page] = deque()
        self._in_flight: list[_Page] = []
        self._rate = load.pages_per_s(load.slots)
        self._next_arrival = 0.0
        self.answered = 0

    @property
    def work(self) -> float:
        """What the card is asked to do, 0 to 1 of what all slots give it."""
        most = self._load.pages_per_s(self._load.slots)
        return self._load.pages_per_s(len(self._in_flight)) / most

    def advance(self, now: float, step_s: float, clock: float | None) -> None:
        """`clock` of the full one; None: there is no card."""
        self._arrivals(now)
        self._dispatch(now)
        if clock is None:
            self._fail(now)
            return
        speed, pages = self._load.speed(clock), len(self._in_flight)
        each = self._load.pages_per_s(pages) / pages if pages else 0.0
        done = 0
        for page in self._in_flight:
            page.left -= each * speed * step_s
            page.measured_s += step_s
            page.reference_s += speed * step_s
            if page.left <= 0:
                self._end(now, page)
                done += 1
        self._in_flight = [page for page in self._in_flight if page.left > 0]
        self._rate += (done / step_s - self._rate) * step_s / _RATE_TIME_CONSTANT_S

    def _arrivals(self, now: float) -> None:
        rate = self._load.offered * self._load.pages_per_s(self._load.slots)
        while self._next_arrival <= now:
            self._next_arrival += self._rng.expovariate(rate)
            waits_s = len(self._waiting) / max(self._rate, 0.5)
            is_open = self._guard is not None and self._guard.breaker.state is not State.CLOSED
            if waits_s < _TIMEOUT_S / 2 and not (is_open and self._waiting):
                work = self._rng.lognormvariate(-(_SIGMA**2) / 2, _SIGMA)
                self._waiting.append(_Page(now, work))

    def _dispatch(self, now: float) -> None:
        guard = self._guard
        factor = 1.0 if guard is None else guard.assessment.factor
        while self._waiting and len(self._in_flight) < max(1.0, self._load.slots * factor):
            page = self._waiting[0]
            if guard is not None and now - page.sent < _TIMEOUT_S:
                page.permit = guard.breaker.acquire(now)
                if page.permit is None:
                    return
            self._waiting.popleft()
            if now - page.sent < _TIMEOUT_S:
                self._in_flight.append(page)

    def _end(self, now: float, page: _Page) -> None:
        self.answered += now - page.sent <= _TIMEOUT_S
        if self._guard is not None and page.permit is not None:
            slowdown = self._guard.assessment.slowdown
            slow = self._guard.trip.is_slow(page.measured_s, page.reference_s, slowdown)
            page.permit.settle(now, Outcome.OK, slow=slow)

    def _fail(self, now: float) -> None:
        for page in self._in_flight:
            if page.permit is not None:
                page.permit.settle(now, Outcome.FAILURE)
        self._in_flight.clear()
