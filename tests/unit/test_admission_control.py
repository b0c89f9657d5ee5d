"""The one door to the engine: what it learns, what it refuses first, and what it tells of load."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from hunyuan_ocr.errors import (
    DeadlineUnreachable,
    EngineOverloaded,
    QueueFull,
    QuotaExceeded,
)
from hunyuan_ocr.traffic.adaptive import AdaptiveLimit, LimitOptions
from hunyuan_ocr.traffic.admission import Admission
from hunyuan_ocr.traffic.admission_control import AdmissionControl
from hunyuan_ocr.traffic.classes import DEFAULT_POLICIES, Priority
from hunyuan_ocr.traffic.cost import CostModel, Sample, Speed, Work
from hunyuan_ocr.traffic.degradation import Ladder, LadderOptions, Step
from hunyuan_ocr.traffic.feedback import Feedback
from hunyuan_ocr.traffic.gate import Gate
from hunyuan_ocr.traffic.offered_load import OfferedLoad
from hunyuan_ocr.traffic.outputs import OutputTokens
from hunyuan_ocr.traffic.ratelimit import UNLIMITED, Quota, Quotas, RateLimiter
from hunyuan_ocr.traffic.tickets import Asked

LIMIT = 4
WORK = Work(100, 400, 100)


class Site:
    """Admission control before an engine that takes a second for a page, and reads four at once."""

    def __init__(self, requests: Quota = UNLIMITED) -> None:
        self.now = 0.0
        clock = self.clock
        model = CostModel(Speed(0.5, 0, 0, 0.005, contention=0), slot_tokens=1000)
        self.admission = Admission(
            model,
            DEFAULT_POLICIES,
            limit_slots=LIMIT,
            reserved_slots=1,
            pages_ahead=2,
            rng=Random(1),
        )
        self.heard: Counter[str] = Counter()
        self.offered = OfferedLoad(self.admission, clock, self._hear)
        limit = AdaptiveLimit(LimitOptions(floor=1, ceiling=LIMIT), 0.0)
        self.control = AdmissionControl(
            policies=DEFAULT_POLICIES,
            model=model,
            admission=self.admission,
            gate=Gate(self.admission, clock, self.offered.refused),
            limiter=RateLimiter(Quotas(requests, UNLIMITED), None, clock=clock, rng=Random(1)),
            feedback=Feedback(self.admission, model, limit, {"text": OutputTokens(100)}),
            ladder=Ladder(LadderOptions()),
            offered=self.offered,
            clock=clock,
        )

    def clock(self) -> float:
        return self.now

    def _hear(self, outcome: str, engine_s: float) -> None:
        self.heard[outcome] += round(engine_s * 100)

    def asked(
        self, priority: Priority = Priority.STANDARD, pages: int = 1, time_s: float = 100.0
    ) -> Asked:
        price = self.control.price("text", WORK.visual_tokens, WORK.vit_patches)
        return Asked(priority, "one", self.now + time_s, [price] * pages)


async def test_what_the_queue_refuses_uses_up_no_quota() -> None:
    site = Site(requests=Quota(per_s=1e-3, burst=1))
    for _ in range(3):
        with pytest.raises(DeadlineUnreachable):
            async with site.control.admit(site.asked(time_s=0.5)):
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
            site.control.check([Priority.STANDARD], "other")
        assert refused.value.queue_position
        site.control.check([Priority.STANDARD, Priority.BATCH], "other")
        site.control.check([Priority.INTERACTIVE], "other")


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
    site.control.derate(0.5)
    assert site.admission.limit_slots == LIMIT / 2
    site.control.derate(1.0)
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
            return site.control.served(ticket, "text", WORK, trusted=True)

    assert await served(3.0) == pytest.approx(3.0)
    site.control.recalibrate([Sample(WORK, 0.0, 3.0), Sample(Work(50, 200, 40), 0.0, 1.5)])
    assert await served(3.0) == pytest.approx(1.0, rel=0.2)


async def test_callers_who_wait_move_the_ladder_and_batch_does_not() -> None:
    site = Site()
    async with site.control.admit(site.asked(Priority.BATCH, pages=200, time_s=600)):
        for site.now in range(20):
            assert site.control.step() is Step.NORMAL
        async with site.control.admit(site.asked(Priority.STANDARD, pages=40)):
            for site.now in range(20, 35):
                site.control.step()
            assert site.control.pixel_factor == 0.5
            assert site.control.batch_shrunk
            assert site.admission.batch_slots_max == 1
    for site.now in range(35, 100):
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
        assert site.offered.value == pytest.approx(1 / LIMIT + waiting)
    for _ in range(3000):  # for a minute as much is refused as the engine can do ten times
        site.now += 0.02
        with pytest.raises(DeadlineUnreachable):
            async with site.control.admit(site.asked(time_s=0.5, pages=1)):
                pass
    refused_per_s = 50 / LIMIT
    assert site.offered.value == pytest.approx(refused_per_s * (1 - 2.718**-2), rel=0.05)
    site.now += 300
    assert site.offered.value < 0.01
