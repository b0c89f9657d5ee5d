"""What served pages teach, from the slots they held to the next price."""

from __future__ import annotations

from random import Random

import pytest

from hunyuan_ocr.traffic.adaptive import AdaptiveLimit, LimitOptions
from hunyuan_ocr.traffic.admission import Admission
from hunyuan_ocr.traffic.classes import DEFAULT_POLICIES, Priority
from hunyuan_ocr.traffic.cost import CostModel, Speed, Work
from hunyuan_ocr.traffic.feedback import Feedback
from hunyuan_ocr.traffic.outputs import OutputTokens
from hunyuan_ocr.traffic.tickets import Asked, Refusal, Ticket

SPEED = Speed(0.1, 0.0, 0.0, 0.01, contention=0.1)
WORK = Work(500, 2000, 90)


class Site:
    def __init__(self) -> None:
        model = CostModel(SPEED, slot_tokens=1000)
        self.admission = Admission(
            model,
            DEFAULT_POLICIES,
            limit_slots=8,
            reserved_slots=2,
            pages_ahead=8,
            rng=Random(1),
        )
        limit = AdaptiveLimit(LimitOptions(floor=2, ceiling=8), 0.0)
        self.feedback = Feedback(
            self.admission, model, limit, {"text": OutputTokens(90), "table": OutputTokens(400)}
        )

    def start(self, now: float) -> Ticket:
        price = self.feedback.price("text", WORK.visual_tokens, WORK.vit_patches)
        tickets = self.admission.submit(
            now, Asked(Priority.INTERACTIVE, "one", now + 1e6, (price,))
        )
        assert not isinstance(tickets, Refusal)
        self.admission.join(tickets[0])
        self.admission.advance(now)
        self.admission.make_ready(tickets[0])
        assert list(self.admission.advance(now).started) == [tickets[0]]
        return tickets[0]

    def serve(self, now: float, ticket: Ticket, *, trusted: bool = True) -> float:
        ratio = self.feedback.served(now, ticket, "text", WORK, trusted=trusted)
        self.admission.leave(now, ticket)
        return ratio


def test_the_load_beside_a_page_is_its_mean_over_the_time_it_was_served() -> None:
    site = Site()
    page = site.start(0.0)
    other = site.start(4.0)
    site.admission.leave(6.0, other)
    third = site.start(8.0)
    assert site.admission.load_slots(10.0, page) == pytest.approx((2 + 2) / 10)
    assert site.admission.load_slots(10.0, third) == pytest.approx(1)


def test_a_page_as_slow_as_its_neighbours_make_it_reads_as_healthy() -> None:
    site = Site()
    pages = [site.start(0.0) for _ in range(6)]
    end = SPEED.service_s(WORK, 5.0)
    assert site.serve(end, pages[0]) == pytest.approx(1)


def test_a_slow_engine_shrinks_the_limit() -> None:
    site = Site()
    now = 0.0
    for _ in range(20):
        page = site.start(now)
        now += 3 * SPEED.service_s(WORK, 0.0)
        assert site.serve(now, page) == pytest.approx(3, rel=0.01)
    assert site.admission.limit_slots < 8


def test_a_page_the_engine_cannot_hold_halves_the_limit_and_heat_lowers_it() -> None:
    site = Site()
    page = site.start(1.0)
    site.feedback.overloaded(2.0, page, "preemption")
    assert site.admission.limit_slots == 4
    site.feedback.derate(0.5)
    assert site.admission.limit_slots == 2
    site.feedback.derate(1.0)
    assert site.admission.limit_slots == 4


def test_answers_longer_than_expected_raise_the_price_of_their_task_alone() -> None:
    site = Site()
    before = {task: site.feedback.price(task, 500, 2000).cost for task in ("text", "table")}
    for second in range(50):
        page = site.start(float(second))
        long = Work(WORK.visual_tokens, WORK.vit_patches, 900)
        site.feedback.served(second + 0.9, page, "text", long, trusted=False)
        site.admission.leave(second + 0.9, page)
    assert site.feedback.price("text", 500, 2000).cost > 4 * before["text"]
    assert site.feedback.price("table", 500, 2000).cost == pytest.approx(before["table"])
