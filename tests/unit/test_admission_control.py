"""The one door to the engine: what it learns, what it refuses first, and what it tells of load."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from hunyuan_ocr.errors import (
    DeadlineUnreachable,
    EngineOverloaded,
    QueueFull,
    QuotaExceeded,
)
from hunyuan_ocr.traffic.classes import Priority
from hunyuan_ocr.traffic.cost import Sample, Work
from hunyuan_ocr.traffic.degradation import Step
from hunyuan_ocr.traffic.ratelimit import (
    UNLIMITED,
    Debt,
    Quota,
    Quotas,
    RateLimiter,
    Verdict,
)
from hunyuan_ocr.traffic.tickets import Asked
from tests.unit.admission_site import LIMIT, WORK, Site


async def test_what_the_queue_refuses_uses_up_no_quota() -> None:
    site = Site(requests=Quota(per_s=1e-3, burst=1))
    async with site.control.admit(site.asked(tenant="other", pages=20)):
        for _ in range(3):
            with pytest.raises(DeadlineUnreachable):
                async with site.control.admit(site.asked(time_s=1.2)):
                    pass
    async with site.control.admit(site.asked()) as tickets:
        assert len(tickets) == 1
    with pytest.raises(QuotaExceeded):
        async with site.control.admit(site.asked()):
            pass
    # Another replica would refuse it too: nothing to scale for.
    assert set(site.heard) == {"admitted", "deadline_unreachable"}


async def test_a_request_of_unknown_class_is_refused_only_where_no_class_has_room() -> None:
    site = Site()
    async with site.control.admit(site.asked(Priority.STANDARD, pages=50)):
        with pytest.raises(QueueFull) as refused:
            site.control.check([Priority.STANDARD], "one")
        assert refused.value.queue_position
        site.control.check([Priority.STANDARD, Priority.BATCH], "one")
        site.control.check([Priority.INTERACTIVE], "one")


async def test_an_engine_that_has_too_much_gets_half() -> None:
    site = Site()
    async with site.control.admit(site.asked()) as (ticket,), site.control.turn(ticket):
        with pytest.raises(EngineOverloaded):
            async with site.control.engine(ticket):
                raise EngineOverloaded
    assert site.admission.limit_slots == LIMIT / 2


async def test_preemptions_cut_once_for_the_pages_that_caused_them() -> None:
    site = Site()
    async with (
        site.control.admit(site.asked()) as (ticket,),
        site.control.turn(ticket),
        site.control.engine(ticket),
    ):
        site.now = 1.0
        site.control.preempted()
        site.now = 2.0
        site.control.preempted()
    assert site.admission.limit_slots == LIMIT / 2


async def test_a_hot_card_gets_less_and_later_all_of_it() -> None:
    site = Site()
    site.control.spare(0.5, fewer_pixels=False, well=False)
    assert site.admission.limit_slots == LIMIT / 2
    site.control.spare(1.0, fewer_pixels=False, well=True)
    assert site.admission.limit_slots == LIMIT


async def test_it_tells_how_slow_a_page_was_and_what_an_engine_met_anew_can_do() -> None:
    site = Site()

    async def served(seconds: float) -> float:
        async with (
            site.control.admit(site.asked()) as (ticket,),
            site.control.turn(ticket),
            site.control.engine(ticket),
        ):
            site.now += seconds
            return site.control.served(ticket, "text", WORK)

    assert await served(3.0) == pytest.approx(3.0)
    site.control.recalibrate([Sample(WORK, 0.0, 3.0), Sample(Work(50, 200, 40), 0.0, 1.5)])
    assert await served(3.0) == pytest.approx(1.0, rel=0.2)


async def test_callers_who_wait_move_the_ladder_and_batch_does_not() -> None:
    site = Site()
    async with site.control.admit(site.asked(Priority.BATCH, pages=200, time_s=600)):
        for site.now in range(20):
            assert site.control.step() is Step.NORMAL
        one, two = (site.asked(pages=40, tenant=name) for name in ("one", "two"))
        async with site.control.admit(one):
            for site.now in range(20, 35):
                assert site.control.step() is Step.NORMAL, "one caller alone harms itself alone"
        async with site.control.admit(one), site.control.admit(two):
            for site.now in range(35, 50):
                site.control.step()
            assert site.control.pixel_factor == 0.5
            assert site.control.batch_shrunk
            assert site.admission.batch_slots_max == 1
    for site.now in range(50, 120):
        site.control.step()
    assert site.control.pixel_factor == 1
    assert not site.control.batch_shrunk


async def test_offered_load_is_in_parts_of_what_the_engine_can_do() -> None:
    site = Site()
    assert site.offered.value == 0
    async with (
        site.control.admit(site.asked(pages=LIMIT)) as tickets,
        site.control.turn(tickets[0]),
        site.control.engine(tickets[0]),
    ):
        waiting = (LIMIT - 1) / (8 * LIMIT)
        assert site.offered.value == pytest.approx(waiting)
        for _ in range(120):
            site.now += 1
            site.control.step()
        assert site.offered.value == pytest.approx(1 / LIMIT + waiting, rel=0.02)
    for _ in range(300):
        site.now += 1
        site.control.step()
    assert site.offered.value < 0.01
    async with site.control.admit(site.asked(Priority.BATCH, pages=40, time_s=600)):
        waiting = site.offered.value
        for _ in range(3000):  # for a minute as much is refused as the engine can do ten times
            site.now += 0.02
            with pytest.raises(DeadlineUnreachable):
                async with site.control.admit(site.asked(Priority.BATCH, time_s=1.5)):
                    pass
            site.control.step()
        offered = site.offered.value - waiting
    refused_per_s = 50 / LIMIT
    assert offered == pytest.approx(refused_per_s * (1 - 2.718**-2), rel=0.05)
    for _ in range(300):
        site.now += 1
        site.control.step()
    assert site.offered.value < 0.01


async def test_a_page_in_several_turns_is_priced_as_so_many_and_each_turn_is_measured_alone() -> (
    None
):
    site = Site()
    one = site.control.price("text", WORK.visual_tokens, WORK.vit_patches)
    three = one.times(3)
    assert three.slots == one.slots
    assert three.cost == pytest.approx(3 * one.cost)
    asked = Asked(Priority.STANDARD, "one", site.now + 100, [three])
    async with site.control.admit(asked) as (ticket,):  # noqa: SIM117
        async with site.control.turn(ticket), site.control.engine(ticket):
            for seconds in (1.0, 1.0, 2.0):
                site.control.begin(ticket)
                site.now += seconds
                ratio = site.control.served(ticket, "text", WORK)
                assert ratio == pytest.approx(seconds, rel=0.01)
    with pytest.raises(DeadlineUnreachable):
        async with site.control.admit(Asked(Priority.STANDARD, "one", site.now + 2.5, [three])):
            raise AssertionError("three turns of a second do not fit into 2.5 s")


async def test_what_no_engine_could_do_in_its_time_is_no_load() -> None:
    site = Site()
    for _ in range(20):
        with pytest.raises(DeadlineUnreachable, match="timeout_s") as refused:
            async with site.control.admit(site.asked(Priority.BATCH, pages=500, time_s=0.1)):
                pass
        assert refused.value.retry_after_s is not None
        assert refused.value.retry_after_s > 30
    assert site.offered.value == 0
    assert not site.heard


async def test_a_stall_is_forgotten_though_all_is_refused_meanwhile() -> None:
    site = Site()
    async with (
        site.control.admit(site.asked(time_s=1000)) as (ticket,),
        site.control.turn(ticket),
        site.control.engine(ticket),
    ):
        site.now += 100
        site.control.served(ticket, "text", WORK)
    with pytest.raises(DeadlineUnreachable):
        async with site.control.admit(site.asked(time_s=10)):
            pass
    for _ in range(60):
        site.now += 1
        site.control.step()
    async with site.control.admit(site.asked(time_s=10)):
        pass


async def test_a_quota_that_is_used_up_refuses_before_the_body() -> None:
    site = Site(requests=Quota(per_s=1e-3, burst=1))
    site.control.check(Priority, "one")
    async with site.control.admit(site.asked()):
        pass
    with pytest.raises(QuotaExceeded):
        site.control.check(Priority, "one")
    site.control.check(Priority, "another")


async def test_those_who_come_together_lose_no_quota_to_a_full_queue() -> None:
    site = Site(requests=Quota(per_s=1e-6, burst=1000))
    slow_store, counts, leave = asyncio.Event(), Counter[str](), asyncio.Event()

    class Store:
        async def take(self, tenant: str, cost: float, least: Debt) -> Verdict:
            await slow_store.wait()
            counts["debited"] += 1
            return Verdict(-1.0, Debt(counts["debited"] * 1e6, 0.0))

    quotas = Quotas(Quota(per_s=1e-6, burst=1000), UNLIMITED)
    site.control.limiter = RateLimiter(quotas, Store(), clock=site.clock, rng=Random(1))

    async def one() -> None:
        try:
            async with site.control.admit(site.asked(pages=10, time_s=600)):
                counts["admitted"] += 1
                await leave.wait()
        except QueueFull:
            counts["refused"] += 1

    tasks = [asyncio.create_task(one()) for _ in range(50)]
    await asyncio.sleep(0)
    slow_store.set()
    await asyncio.sleep(0.01)
    leave.set()
    await asyncio.gather(*tasks)
    assert counts["refused"] > 0
    assert counts["debited"] == counts["admitted"]


async def test_slots_held_longer_than_paid_for_are_owed() -> None:
    site = Site(cost=Quota(per_s=1.0, burst=100))
    for held_s, owed in ((11.0, 10.0), (0.5, -0.5)):
        async with site.control.admit(site.asked()) as (ticket,):
            before = site.control.limiter.debt("one").cost_s
            async with site.control.turn(ticket), site.control.engine(ticket):
                site.now += held_s
        after = site.control.limiter.debt("one").cost_s
        assert after == pytest.approx(max(0.0, before - held_s) + owed)
