"""What served pages teach, from the slots they held to the next price."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hunyuan_ocr.traffic.adaptive import AdaptiveLimit, LimitOptions
from hunyuan_ocr.traffic.admission import Admission
from hunyuan_ocr.traffic.classes import DEFAULT_POLICIES, Priority
from hunyuan_ocr.traffic.cost import CostModel, Price, Speed, Work
from hunyuan_ocr.traffic.feedback import Feedback
from hunyuan_ocr.traffic.outputs import OutputTokens
from hunyuan_ocr.traffic.tickets import Asked, Refusal, State, Ticket

SPEED = Speed(0.1, 0.0, 0.0, 0.01, contention=0.1)
WORK = Work(500, 2000, 90)


class Site:
    def __init__(self) -> None:
        self.model = model = CostModel(SPEED, slot_tokens=1000)
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

    def start(self, now: float, price: Price | None = None) -> Ticket:
        price = price or self.feedback.price("text", WORK.visual_tokens, WORK.vit_patches)
        ticket = self.wait(now, price)
        assert ticket.state is State.RUNNING
        return ticket

    def wait(self, now: float, price: Price) -> Ticket:
        """A page that is prepared and wants slots."""
        tickets = self.admission.submit(now, Asked(Priority.STANDARD, "one", now + 1e6, (price,)))
        assert not isinstance(tickets, Refusal)
        self.admission.join(tickets[0])
        self.admission.advance(now)
        self.admission.make_ready(tickets[0])
        self.admission.advance(now)
        return tickets[0]

    def owes(self, ticket: Ticket) -> float:
        """What a page that left cost beyond its price, in parts of that."""
        return ticket.extra / ticket.cost

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


@given(st.floats(0.3, 30), st.integers(1, 6))
def test_a_slow_or_shared_engine_makes_no_page_dearer(slowness: float, together: int) -> None:
    site = Site()
    pages = [site.start(0.0) for _ in range(together)]
    end = slowness * SPEED.service_s(WORK, together - 1)
    for page in pages:
        site.serve(end, page)
        assert site.owes(page) == pytest.approx(0, abs=1e-4)


def test_a_longer_answer_than_expected_costs_its_caller_more() -> None:
    site = Site()
    page = site.start(0.0)
    long = Work(WORK.visual_tokens, WORK.vit_patches, 10 * WORK.output_tokens)
    site.feedback.served(99.0, page, "text", long, trusted=True)
    site.admission.leave(99.0, page)
    assert site.owes(page) == pytest.approx(SPEED.alone_s(long) / SPEED.alone_s(WORK) - 1)


def test_a_page_of_parts_is_paid_by_part() -> None:
    site = Site()
    price = site.feedback.price("text", WORK.visual_tokens, WORK.vit_patches).times(3)
    page = site.start(0.0, price)
    for turn in range(3):
        site.admission.begin(float(turn), page)
        site.feedback.served(turn + 1.0, page, "text", WORK, trusted=True)
    site.admission.leave(3.0, page)
    assert site.owes(page) == pytest.approx(0, abs=1e-4)


def test_slots_held_without_an_answer_are_paid_by_time() -> None:
    """A client that leaves early, or takes its text slowly."""
    site = Site()
    page, other = site.start(0.0), site.start(0.0)
    site.admission.leave(11.0, page)
    used = page.cost + page.extra
    assert used == pytest.approx(11.0 / (1 + SPEED.contention))
    site.admission.leave(11.0, other)


def test_pages_that_a_stuck_engine_never_answers_cost_their_callers_little() -> None:
    site = Site()
    pages = [site.start(0.0) for _ in range(6)]
    for page in pages:
        site.feedback.given_up(30.0, page, WORK)
        site.admission.leave(30.0, page)
        assert site.owes(page) < 1


def test_an_engine_too_slow_for_any_deadline_is_noticed() -> None:
    site = Site()
    for second in range(0, 60, 3):
        page = site.start(float(second))
        site.feedback.given_up(second + 3.0, page, WORK)
        site.admission.leave(second + 3.0, page)
    assert site.model.scale.factor > 2.5
    assert site.admission.limit_slots < 8
    assert site.model.reference.drift == 1


def test_a_page_given_up_before_it_could_be_done_says_nothing() -> None:
    site = Site()
    for second in range(60):
        page = site.start(float(second))
        site.feedback.given_up(second + 0.9, page, WORK)
        site.admission.leave(second + 0.9, page)
    assert site.model.scale.factor == 1
    assert site.admission.limit_slots == 8


def test_the_limit_grows_again_with_pages_that_never_fill_it() -> None:
    """Two pages of 1.7 slots leave a good half of a slot of four unused, four of them more."""
    site = Site()
    page = site.start(0.0)
    site.feedback.overloaded(1.0, page)
    site.admission.leave(1.0, page)
    large, now = Price(1.7, 1.0, 1.7), 1.0
    pages: list[Ticket] = []
    for _ in range(20):
        while len(pages) < 6:
            pages.append(site.wait(now, large))
        started = [page for page in pages if page.state is State.RUNNING]
        now += SPEED.service_s(WORK, 1.7 * (len(started) - 1))
        for page in started:
            assert site.serve(now, page) == pytest.approx(1, rel=0.01)
            pages.remove(page)
        site.admission.advance(now)
    assert site.admission.limit_slots == 8


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
    site.feedback.overloaded(2.0, page)
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
