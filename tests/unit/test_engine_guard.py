"""The guard before the engine: what opens it, what it does to admission, who is let through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random

import pytest

from hunyuan_ocr.errors import BreakerOpen, EngineUnavailable
from hunyuan_ocr.traffic.breaker_states import (
    BreakerOptions,
    OpenPolicy,
    Reason,
    State,
    Transition,
)
from hunyuan_ocr.traffic.engine_guard import EngineGuard, EngineTurn
from hunyuan_ocr.traffic.latency_trip import LatencyOptions, LatencyTrip
from hunyuan_ocr.traffic.thermal import ThermalPolicy, ThermalProfile
from hunyuan_ocr.traffic.tickets import Ticket
from tests.unit.admission_site import LIMIT, WORK, Site


@dataclass(frozen=True)
class Card:
    """One sample of a card, just taken."""

    temperature_c: float | None = 60.0
    slowdown_in_c: float | None = 24.0
    reasons: frozenset[str] = frozenset()
    throttled_ns: int | None = None
    sm_clock_mhz: float | None = None
    age_s: float = 0.0


HOT = Card(temperature_c=86, slowdown_in_c=-2, reasons=frozenset({"hardware_thermal"}))


class Guarded:
    def __init__(self, options: BreakerOptions | None = None) -> None:
        self.site = Site()
        self.transitions: list[Transition] = []
        self.guard = EngineGuard(
            options or BreakerOptions(),
            LatencyTrip(LatencyOptions()),
            ThermalPolicy(ThermalProfile()),
            self.site.control,
            clock=self.site.clock,
            rng=Random(1),
            on_transition=self.transitions.append,
        )

    @asynccontextmanager
    async def turn(self, time_s: float = 100.0) -> AsyncIterator[EngineTurn]:
        control = self.site.control
        asked = self.site.asked(time_s=time_s)
        async with (
            control.admit(asked) as (ticket,),
            control.turn(ticket),
            control.engine(ticket),
            self.guard.turn(ticket) as turn,
        ):
            yield turn

    async def read(self, seconds: float, first_token_s: float | None = None) -> None:
        async with self.turn() as turn:
            first_at = None if first_token_s is None else self.site.now + first_token_s
            self.site.now += seconds
            turn.answered(self.site.now, WORK, first_at)

    async def fail(self, error: BaseException, seconds: float, time_s: float = 100.0) -> None:
        async with self.turn(time_s):
            self.site.now += seconds
            raise error

    def wait(self, seconds: int, card: Card | None = None) -> None:
        for _ in range(seconds):
            self.site.now += 1
            self.guard.watch(None, "", card)


async def test_an_engine_three_times_as_slow_opens_it_and_is_tried_again() -> None:
    guarded = Guarded()
    for _ in range(10):
        guarded.guard.check()
        await guarded.read(3.0)
    with pytest.raises(BreakerOpen) as refused:
        guarded.guard.check()
    assert refused.value.retry_after_s
    assert guarded.guard.state.reason is Reason.LATENCY
    guarded.wait(15)
    for _ in range(3):
        guarded.guard.check()
        await guarded.read(1.0)
    assert guarded.guard.state.state is State.CLOSED
    assert [t.after for t in guarded.transitions] == [State.OPEN, State.HALF_OPEN, State.CLOSED]


async def test_an_engine_whose_first_token_comes_late_opens_it() -> None:
    guarded = Guarded()
    for _ in range(10):
        await guarded.read(1.9, first_token_s=1.8)
    assert guarded.guard.state.reason is Reason.LATENCY


async def test_failures_open_it_and_clients_who_leave_do_not() -> None:
    guarded = Guarded()
    for _ in range(30):
        with pytest.raises(asyncio.CancelledError):
            await guarded.fail(asyncio.CancelledError(), 0.5)
    assert guarded.guard.state.state is State.CLOSED
    for _ in range(10):
        with pytest.raises(EngineUnavailable):
            await guarded.fail(EngineUnavailable(), 0.1)
    assert guarded.guard.state.reason is Reason.ERROR


async def test_pages_that_run_out_of_time_speak_only_where_they_had_enough() -> None:
    """Of a long answer half may be there when its time is over: then the engine did its work."""
    hasty, patient = Guarded(), Guarded()
    for guarded, seconds in ((hasty, 1.2), (patient, 2.6)):
        for _ in range(10):
            async with guarded.turn() as turn:
                guarded.site.now += seconds
                turn.overdue(guarded.site.now, WORK)
    assert hasty.guard.state.state is State.CLOSED
    assert patient.guard.state.reason is Reason.LATENCY


async def test_a_card_that_is_warm_again_is_not_tried_for_ever() -> None:
    guarded = Guarded()
    guarded.wait(10, HOT)
    guarded.wait(35, Card(temperature_c=50, slowdown_in_c=34))
    for _ in range(700):
        guarded.guard.check()
        await guarded.read(1.0)
        guarded.guard.watch(None, "", Card(temperature_c=78, slowdown_in_c=6))
    assert guarded.guard.state.state is State.CLOSED


async def test_after_heat_an_engine_that_stays_slow_is_told_so() -> None:
    guarded = Guarded()
    cool = Card(temperature_c=50, slowdown_in_c=34)
    guarded.wait(10, HOT)
    guarded.wait(35, cool)
    while guarded.site.now < 120 and guarded.guard.state.reason is not Reason.LATENCY:
        await guarded.read(3.0)
        guarded.guard.watch(None, "", cool)
    assert guarded.guard.state.reason is Reason.LATENCY


async def test_a_worse_reason_is_told_while_it_is_open() -> None:
    guarded = Guarded()
    for _ in range(10):
        with pytest.raises(EngineUnavailable):
            await guarded.fail(EngineUnavailable(), 0.1)
    guarded.guard.watch("dead", "gone", None)
    guarded.guard.watch("dead", "gone", None)
    told = [(transition.after, transition.reason) for transition in guarded.transitions]
    assert told == [(State.OPEN, Reason.ERROR), (State.OPEN, Reason.ENGINE_HUNG)]


async def test_a_hot_card_gets_fewer_pages_then_none_then_all() -> None:
    guarded = Guarded()
    admission = guarded.site.admission
    guarded.wait(5, Card())
    assert admission.limit_slots == LIMIT
    guarded.wait(10, HOT)
    assert guarded.guard.state.reason is Reason.THERMAL
    assert admission.limit_slots < LIMIT
    with pytest.raises(BreakerOpen):
        guarded.guard.check()
    guarded.wait(35, Card(temperature_c=50, slowdown_in_c=34))
    for _ in range(30):
        guarded.guard.check()
        await guarded.read(1.0)
        guarded.guard.watch(None, "", Card(temperature_c=50, slowdown_in_c=34))
    states = [transition.after for transition in guarded.transitions]
    assert states == [State.OPEN, State.HALF_OPEN, State.CLOSED]
    guarded.wait(60, Card(temperature_c=50, slowdown_in_c=34))
    assert admission.limit_slots == LIMIT


async def test_what_is_measured_of_a_spared_engine_teaches_no_reference() -> None:
    guarded = Guarded()
    model = guarded.site.control._model
    guarded.wait(10, HOT)
    for _ in range(50):
        guarded.site.now += 1
        control = guarded.site.control
        async with (
            control.admit(guarded.site.asked()) as (ticket,),
            control.turn(ticket),
            control.engine(ticket),
        ):
            guarded.site.now += 3
            control.served(ticket, "text", WORK)
    assert model.reference.drift == 1.0


@pytest.mark.parametrize(
    ("trouble", "reason"), [("dead", Reason.ENGINE_HUNG), ("leaking", Reason.ISOLATION)]
)
async def test_an_engine_in_trouble_holds_it_open_until_it_is_well(
    trouble: str, reason: Reason
) -> None:
    guarded = Guarded()
    for _ in range(40):
        guarded.site.now += 1
        guarded.guard.watch(trouble, "it does not answer", None)  # type: ignore[arg-type]
        with pytest.raises(BreakerOpen):
            guarded.guard.check()
    assert guarded.guard.state.reason is reason
    assert guarded.guard.state.why == "it does not answer"
    guarded.wait(1)
    guarded.guard.check()


async def test_half_open_a_few_pages_are_let_through_and_the_others_wait_for_them() -> None:
    guarded = Guarded()
    guarded.guard.watch("dead", "gone", None)
    guarded.wait(12)
    async with guarded.turn() as one, guarded.turn() as two, guarded.turn() as three:
        with pytest.raises(BreakerOpen):
            guarded.guard.check()
        fourth = asyncio.create_task(guarded.read(1.0))
        await asyncio.sleep(0.25)
        assert not fourth.done()
        for turn in (one, two, three):
            turn.answered(guarded.site.now, WORK, None)
        await asyncio.wait_for(fourth, 5)
    guarded.guard.check()
    assert guarded.guard.state.state is State.CLOSED


async def test_degrading_lets_pages_through_with_fewer_pixels_and_slots() -> None:
    guarded = Guarded(BreakerOptions(policies={Reason.LATENCY: OpenPolicy.DEGRADE}))
    control, admission = guarded.site.control, guarded.site.admission
    assert control.pixel_factor == 1
    for _ in range(10):
        await guarded.read(3.0)
    assert guarded.guard.state.reason is Reason.LATENCY
    assert control.pixel_factor == 0.5
    assert admission.limit_slots < LIMIT / 2
    guarded.guard.check()
    await guarded.read(3.0)
    guarded.guard.open("by hand")
    with pytest.raises(BreakerOpen):
        guarded.guard.check()


async def test_who_waits_for_a_trial_and_meets_an_engine_that_fails_pays_for_neither() -> None:
    guarded = Guarded()
    control = guarded.site.control
    guarded.guard.watch("dead", "gone", None)
    guarded.wait(12)

    async def fail(ticket: Ticket) -> None:
        async with guarded.guard.turn(ticket):
            guarded.site.now += 4.0
            raise EngineUnavailable

    async with AsyncExitStack() as trial:
        first, *_ = [await trial.enter_async_context(guarded.turn()) for _ in range(3)]
        async with (
            control.admit(guarded.site.asked()) as (ticket,),
            control.turn(ticket),
            control.engine(ticket),
        ):
            waits = asyncio.create_task(fail(ticket))
            await asyncio.sleep(0)
            guarded.site.now += 4.0
            first.unjudged(guarded.site.now)
            with pytest.raises(EngineUnavailable):
                await waits
        assert ticket.cost + ticket.extra < 0.1
