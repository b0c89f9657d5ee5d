"""The gate: turns and slots as context managers, whatever happens inside."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from random import Random

import pytest

from hunyuan_ocr.errors import (
    DeadlineExceeded,
    DeadlineUnreachable,
    ImageCorrupt,
    OcrError,
    QueueFull,
)
from hunyuan_ocr.traffic.admission import Admission
from hunyuan_ocr.traffic.classes import DEFAULT_POLICIES, Priority
from hunyuan_ocr.traffic.cost import CostModel, Price, Speed
from hunyuan_ocr.traffic.gate import Gate
from hunyuan_ocr.traffic.tickets import Asked

PAGE = Price(1.0, 1.0, 1.0)
LIMIT = 3


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Site:
    """A gate, its clock and the machine behind it."""

    def __init__(self, limit: float = LIMIT) -> None:
        self.clock = Clock()
        self.admission = Admission(
            CostModel(Speed(0.1, 0, 0, 0, contention=0), slot_tokens=1000),
            DEFAULT_POLICIES,
            limit_slots=limit,
            reserved_slots=1,
            pages_ahead=2,
            rng=Random(1),
        )
        self.engine_ready = True
        self.gate = Gate(self.admission, self.clock, lambda _: None, lambda: self.engine_ready)

    @property
    def waiting(self) -> int:
        return sum(self.admission.waiting(priority) for priority in Priority)

    def asked(
        self, priority: Priority = Priority.BATCH, pages: int = 1, time_s: float = 500.0
    ) -> Asked:
        return Asked(priority, "one", self.clock() + time_s, [PAGE] * pages)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_everything_is_returned_under_random_cancels_and_faults() -> None:
    rng = Random(1)
    site = Site()
    highest = 0.0

    async def request() -> None:
        nonlocal highest
        priority = rng.choice(list(Priority))
        with site.gate.admit(site.asked(priority, rng.randint(1, 3))) as tickets:
            for ticket in tickets[: rng.randint(0, 3)]:
                async with site.gate.turn(ticket):
                    await asyncio.sleep(0)
                    if rng.random() < 0.2:
                        raise ValueError
                    async with site.gate.engine(ticket):
                        highest = max(highest, site.admission.held_slots)
                        for _ in range(rng.randint(0, 5)):
                            await asyncio.sleep(0)
                        if rng.random() < 0.2:
                            raise ValueError

    tasks = []
    for _ in range(500):
        tasks.append(asyncio.create_task(request()))
        site.clock.now += rng.choice([0, 0.01, 0.1, -1, 700 * (rng.random() < 0.01)])
        if rng.random() < 0.4:
            rng.choice(tasks).cancel()
        if rng.random() < 0.05:
            site.admission.limit_slots = rng.randint(1, LIMIT)
            site.gate.advance()
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    unexpected = [
        o for o in outcomes if o is not None and not isinstance(o, (OcrError, ValueError))
    ]
    assert all(isinstance(o, asyncio.CancelledError) for o in unexpected)
    assert sum(o is None for o in outcomes) > 50
    assert highest == LIMIT
    assert (site.admission.held_slots, site.waiting) == (0, 0)
    gc.collect()


async def test_a_page_gets_its_turn_when_another_leaves() -> None:
    site = Site(limit=1)
    order: list[str] = []

    async def page(name: str, leave: asyncio.Event) -> None:
        with site.gate.admit(site.asked()) as (ticket,):
            async with site.gate.turn(ticket):
                order.append(f"{name} prepared")
                async with site.gate.engine(ticket):
                    order.append(f"{name} sent")
                    await leave.wait()

    leave = asyncio.Event()
    first = asyncio.create_task(page("first", leave))
    second = asyncio.create_task(page("second", leave))
    await settle()
    assert order == ["first prepared", "first sent", "second prepared"]
    leave.set()
    await asyncio.gather(first, second)
    assert order[-1] == "second sent"


async def test_each_page_of_a_document_gives_back_its_own() -> None:
    """A page that failed or is done must not hold a place as long as the document is open."""
    site = Site(limit=1)
    with site.gate.admit(site.asked(pages=6)) as tickets:
        async with asyncio.timeout(1):
            for ticket in tickets[:4]:
                with pytest.raises(ImageCorrupt):
                    async with site.gate.turn(ticket):
                        raise ImageCorrupt
            assert site.waiting == 2
            async with site.gate.turn(tickets[4]), AsyncExitStack() as slot:
                await slot.enter_async_context(site.gate.engine(tickets[4]))
                assert site.admission.held_slots == 1
                await slot.aclose()
                assert site.admission.held_slots == 0


async def test_a_cancelled_page_lets_the_next_one_in() -> None:
    site = Site(limit=1)

    async def page() -> None:
        with site.gate.admit(site.asked()) as (ticket,):
            async with site.gate.turn(ticket), site.gate.engine(ticket):
                await asyncio.Event().wait()

    holding = asyncio.create_task(page())
    await settle()
    with site.gate.admit(site.asked()) as (ticket,):
        async with site.gate.turn(ticket):
            engine = asyncio.create_task(_enter(site, ticket))
            await settle()
            assert not engine.done()
            holding.cancel()
            await asyncio.wait_for(engine, 1)


async def _enter(site: Site, ticket: object) -> None:
    async with site.gate.engine(ticket):  # type: ignore[arg-type]
        pass


async def test_a_page_whose_turn_comes_too_late_is_told_so() -> None:
    site = Site(limit=1)
    with site.gate.admit(site.asked()) as (holder,):
        async with site.gate.turn(holder), site.gate.engine(holder):

            async def late() -> None:
                with site.gate.admit(site.asked(time_s=5)) as (ticket,):
                    async with site.gate.turn(ticket), site.gate.engine(ticket):
                        pytest.fail("it was sent all the same")

            waiting = asyncio.create_task(late())
            await settle()
            site.clock.now = 4.9
            site.gate.advance()
            with pytest.raises(DeadlineExceeded):
                await asyncio.wait_for(waiting, 1)
    assert site.waiting == 0


async def test_a_larger_limit_lets_more_in() -> None:
    site = Site(limit=1)
    entered = asyncio.Event()

    async def second() -> None:
        with site.gate.admit(site.asked(Priority.STANDARD)) as (ticket,):
            async with site.gate.turn(ticket), site.gate.engine(ticket):
                entered.set()

    with site.gate.admit(site.asked(Priority.STANDARD)) as (ticket,):
        async with site.gate.turn(ticket), site.gate.engine(ticket):
            task = asyncio.create_task(second())
            await settle()
            assert not entered.is_set()
            site.admission.limit_slots = 2
            site.gate.advance()
            await asyncio.wait_for(task, 1)


async def test_refusals_are_errors_with_a_time_to_come_back() -> None:
    site = Site(limit=1)
    interactive = site.asked(Priority.INTERACTIVE, pages=50, time_s=100)
    with site.gate.admit(interactive):
        with pytest.raises(QueueFull) as full:
            site.gate.check(Asked(Priority.INTERACTIVE, "one", 1000.0))
        with pytest.raises(QueueFull), site.gate.admit(interactive):
            pass
    with (
        site.gate.admit(site.asked(pages=50)),
        pytest.raises(DeadlineUnreachable) as late,
        site.gate.admit(site.asked(time_s=1.5)),
    ):
        pass
    for refused in (full.value, late.value):
        assert refused.status == 429
        assert refused.retry_after_s is not None
        assert refused.retry_after_s >= 1
    site.gate.check(Asked(Priority.INTERACTIVE, "one", 1000.0))
    with pytest.raises(DeadlineUnreachable, match="timeout_s") as hopeless:  # noqa: SIM117
        with site.gate.admit(site.asked(time_s=0.5)):
            pass
    assert hopeless.value.retry_after_s is not None
    assert hopeless.value.retry_after_s > 30


async def test_what_waits_keeps_its_place_while_the_engine_is_away() -> None:
    site = Site(limit=1)
    site.engine_ready = False
    entered = asyncio.Event()

    async def page(time_s: float) -> None:
        with site.gate.admit(site.asked(time_s=time_s)) as (ticket,):
            async with site.gate.turn(ticket), site.gate.engine(ticket):
                entered.set()

    urgent = asyncio.create_task(page(5))
    patient = asyncio.create_task(page(100))
    await settle()
    assert not patient.done()
    site.clock.now = 4.5
    site.gate.advance()
    with pytest.raises(DeadlineExceeded):
        await asyncio.wait_for(urgent, 1)
    assert not entered.is_set()
    site.engine_ready = True
    site.gate.advance()
    await asyncio.wait_for(patient, 1)
    assert entered.is_set()


async def test_to_be_let_in_by_another_class_sends_nobody_further_away() -> None:
    site = Site(limit=1)
    pages = int(DEFAULT_POLICIES[Priority.BATCH].max_queue_s) + 2
    with site.gate.admit(site.asked(Priority.BATCH, pages=pages, time_s=1e6)):
        possible = [site.asked(p, time_s=1e4) for p in (Priority.BATCH, Priority.STANDARD)]

        def told_s() -> float:
            with pytest.raises(QueueFull) as refused:
                site.gate.check(possible[0])
            assert refused.value.retry_after_s is not None
            return refused.value.retry_after_s

        for _ in range(200):
            site.gate.check(*possible)
        assert told_s() < 10
