"""The engine's guard: the breaker with what trips it and what holds it open.

Every page asks it on its way in (`check`), and again for each turn at the engine (`turn`). Once a
second `watch` hears how the engine and its card are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Literal

from hunyuan_ocr.errors import BreakerOpen, EngineUnavailable
from hunyuan_ocr.traffic.admission_control import AdmissionControl
from hunyuan_ocr.traffic.breaker import Breaker
from hunyuan_ocr.traffic.breaker_states import (
    BreakerOptions,
    OpenPolicy,
    Outcome,
    Permit,
    Reason,
    State,
    Transition,
)
from hunyuan_ocr.traffic.cost import Work
from hunyuan_ocr.traffic.gpu_samples import GpuReading
from hunyuan_ocr.traffic.latency_trip import LatencyTrip
from hunyuan_ocr.traffic.retry import spread_s
from hunyuan_ocr.traffic.thermal import Assessment, ThermalPolicy
from hunyuan_ocr.traffic.tickets import Ticket

Trouble = Literal["dead", "leaking"]
_HOLDS: dict[Trouble, Reason] = {"dead": Reason.ENGINE_HUNG, "leaking": Reason.ISOLATION}
_TRIAL_POLL_S = 0.1
# Slots, as a part of all, that an engine in trouble still gets under the policy `degrade`.
_DEGRADED_FACTOR = 0.4


@dataclass(frozen=True, slots=True)
class GuardState:
    """For people; `why` is empty where all is well. `limit_factor` is what heat leaves of the
    limit, `gpu_stale` that the card's sensors went silent."""

    state: State
    reason: Reason | None
    why: str
    limit_factor: float
    gpu_stale: bool


class EngineGuard:
    """Used by one event loop, whose `clock` it shares."""

    def __init__(
        self,
        options: BreakerOptions,
        trip: LatencyTrip,
        thermal: ThermalPolicy,
        control: AdmissionControl,
        *,
        clock: Callable[[], float],
        rng: Random,
        on_transition: Callable[[Transition], None] = lambda _: None,
    ) -> None:
        self._options = options
        self._trip = trip
        self._thermal = thermal
        self._control = control
        self._clock = clock
        self._rng = rng
        self._on_transition = on_transition
        self._breaker = Breaker(options, self._moved)
        self.heat = Assessment()

    @property
    def state(self) -> GuardState:
        breaker, heat = self._breaker, self.heat
        why = breaker.sentence or heat.sentence
        return GuardState(breaker.state, breaker.reason, why, heat.factor, heat.stale)

    def check(self) -> None:
        """Raise BreakerOpen where a page that comes now would not be read."""
        state, breaker = self._breaker.advance(self._clock()), self._breaker
        trying = state is State.HALF_OPEN and breaker.probing < self._options.probes
        if state is State.CLOSED or trying or breaker.policy is OpenPolicy.DEGRADE:
            return
        raise self._refused()

    def check_open(self) -> None:
        """Raise BreakerOpen where a page that was admitted would not be read either."""
        is_open = self._breaker.advance(self._clock()) is State.OPEN
        if is_open and self._breaker.policy is not OpenPolicy.DEGRADE:
            raise self._refused()

    @asynccontextmanager
    async def turn(self, ticket: Ticket) -> AsyncIterator[EngineTurn]:
        """One request to the engine, for a page that holds its slots. Raises BreakerOpen.

        While others try whether the engine is well again, it waits for them. Neither that nor an
        engine that fails is at its cost.
        """
        asked_at = self._clock()
        try:
            while (permit := self._permit()) is None:  # noqa: ASYNC110 - the breaker has no loop
                await asyncio.sleep(_TRIAL_POLL_S)
        finally:
            self._control.excuse(ticket, self._clock() - asked_at)
        with permit:
            # What it waited for others is not the engine's.
            self._control.begin(ticket)
            try:
                yield EngineTurn(self._trip, self._control, permit, ticket, self.heat.slowdown)
            except EngineUnavailable:
                permit.settle(self._clock(), Outcome.FAILURE)
                self._control.excuse(ticket, self._clock() - ticket.started_at)
                raise

    def _permit(self) -> Permit | None:
        """None where it has to wait. Raises BreakerOpen."""
        self.check_open()
        permit = self._breaker.acquire(self._clock())
        if permit is None and self._breaker.policy is OpenPolicy.DEGRADE:
            return Permit(lambda *_: None)
        return permit

    def watch(self, trouble: Trouble | None, why: str, reading: GpuReading | None) -> None:
        """How the engine and its card are now, once a second; `reading` None: no sensors."""
        now = self._clock()
        for name, reason in _HOLDS.items():
            self._hold_while(name == trouble, now, reason, why)
        self.heat = self._thermal.observe(now, reading)
        self._hold_while(self.heat.open, now, Reason.THERMAL, self.heat.sentence)
        if self.heat.warm:
            self._breaker.prolong_trial(now)
        self._breaker.advance(now)
        self._tell_admission()

    def open(self, why: str) -> None:
        """By hand, until `close`."""
        self._breaker.hold(self._clock(), Reason.MANUAL, why)

    def close(self) -> None:
        """End what was opened by hand, and any cool-down; conditions that last go on to hold."""
        self._breaker.close(self._clock())

    def _hold_while(self, lasts: bool, now: float, reason: Reason, why: str) -> None:
        if lasts:
            self._breaker.hold(now, reason, why)
        else:
            self._breaker.release(now, reason)

    def _moved(self, transition: Transition) -> None:
        self._tell_admission()
        self._on_transition(transition)

    def _tell_admission(self) -> None:
        degraded = self._breaker.policy is OpenPolicy.DEGRADE
        factor = min(self.heat.factor, _DEGRADED_FACTOR) if degraded else self.heat.factor
        well = self._breaker.state is State.CLOSED and factor == 1 and self.heat.slowdown == 1
        self._control.spare(factor, fewer_pixels=degraded, well=well)

    def _refused(self) -> BreakerOpen:
        after_s = self._breaker.retry_after_s(self._clock())
        return BreakerOpen(retry_after_s=round(spread_s(after_s, self._rng), 1))


class EngineTurn:
    """What came of one request to the engine, of a page whose `Admission.begin` was told."""

    def __init__(
        self,
        trip: LatencyTrip,
        control: AdmissionControl,
        permit: Permit,
        ticket: Ticket,
        slowdown: float,
    ) -> None:
        self._trip = trip
        self._control = control
        self._permit = permit
        self._ticket = ticket
        self._slowdown = slowdown

    def answered(self, now: float, work: Work, first_token_at: float | None) -> None:
        """It was read; `work` with the tokens that were counted. Before admission learns of it."""
        began = self._ticket.started_at
        expected_s = self._control.expected_s(self._ticket, work)
        slow = self._trip.is_slow(now - began, expected_s, self._slowdown)
        if first_token_at is not None:
            alone = Work(work.visual_tokens, work.vit_patches, 0)
            expected_s = self._control.expected_s(self._ticket, alone)
            slow |= self._trip.is_first_token_slow(
                first_token_at - began, expected_s, self._slowdown
            )
        self._permit.settle(now, Outcome.OK, slow=slow)

    def unjudged(self, now: float) -> None:
        """It was read, but how quickly was not the engine's to decide."""
        self._permit.settle(now, Outcome.OK)

    def overdue(self, now: float, work: Work) -> None:
        """Its time was over before it was read; `work` with the tokens that came until then."""
        expected_s = self._control.expected_s(self._ticket, work)
        if self._trip.is_slow(now - self._ticket.started_at, expected_s, self._slowdown):
            self._permit.settle(now, Outcome.OK, slow=True)
