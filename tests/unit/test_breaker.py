"""What opens the breaker, what does not, and how it closes again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise

import pytest

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

OPTIONS = BreakerOptions(policies={Reason.THERMAL: OpenPolicy.DEGRADE})
HELD = (Reason.THERMAL, Reason.ENGINE_HUNG, Reason.ISOLATION, Reason.MANUAL)


class Watched:
    """A breaker and all that it reported."""

    def __init__(self, options: BreakerOptions = OPTIONS) -> None:
        self.told: list[Transition] = []
        self.breaker = Breaker(options, self.told.append)

    def page(self, at: float, outcome: Outcome = Outcome.OK, *, slow: bool = False) -> bool:
        """Read a page in no time; whether it was let through."""
        permit = self.breaker.acquire(at)
        if permit is None:
            return False
        permit.settle(at, outcome, slow=slow)
        return True

    def pages(self, at: float, outcomes: Iterable[Outcome], *, slow: bool = False) -> None:
        for outcome in outcomes:
            self.page(at, outcome, slow=slow)

    def permits(self, at: float, wanted: int) -> list[Permit]:
        asked = [self.breaker.acquire(at) for _ in range(wanted)]
        return [permit for permit in asked if permit is not None]

    @property
    def way(self) -> list[tuple[State, Reason]]:
        return [(t.after, t.reason) for t in self.told]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def state(watched: Watched) -> State:
    return watched.breaker.state


def opened(watched: Watched, at: float = 0.0) -> None:
    watched.pages(at, [Outcome.FAILURE] * OPTIONS.min_outcomes)
    assert state(watched) is State.OPEN


def test_begins_closed_and_lets_all_through(watched: Watched) -> None:
    assert len(watched.permits(0.0, 100)) == 100
    assert (watched.breaker.reason, watched.breaker.sentence) == (None, "")


def test_half_of_ten_failing_opens_and_nine_do_not(watched: Watched) -> None:
    watched.pages(0.0, [Outcome.OK] * 5 + [Outcome.FAILURE] * 4)
    assert state(watched) is State.CLOSED
    watched.page(0.0, Outcome.FAILURE)
    assert state(watched) is State.OPEN
    assert watched.told[0].reason is Reason.ERROR
    assert watched.told[0].sentence == "50% of the last pages failed"
    assert not watched.page(1.0)


def test_failures_older_than_the_window_are_forgotten(watched: Watched) -> None:
    watched.pages(0.0, [Outcome.FAILURE] * 9)
    watched.page(31.0, Outcome.FAILURE)
    assert state(watched) is State.CLOSED


def test_a_minority_of_failures_never_opens(watched: Watched) -> None:
    for second in range(300):
        watched.pages(second, [Outcome.OK, Outcome.FAILURE, Outcome.OK])
    assert state(watched) is State.CLOSED


def test_cancels_neither_hide_failures_nor_make_any(watched: Watched) -> None:
    watched.pages(0.0, [Outcome.IGNORED] * 1000)
    assert state(watched) is State.CLOSED
    for _ in range(OPTIONS.min_outcomes):
        watched.pages(1.0, [Outcome.FAILURE, *[Outcome.IGNORED] * 50])
    assert state(watched) is State.OPEN


async def test_a_task_cancelled_in_the_engine_counts_as_nothing(watched: Watched) -> None:
    opened(watched)
    at = OPTIONS.cool_down_s

    async def read() -> None:
        permit = watched.breaker.acquire(at)
        assert permit is not None
        with permit:
            await asyncio.sleep(3600)

    tasks = [asyncio.create_task(read()) for _ in range(OPTIONS.probes)]
    await asyncio.sleep(0)
    assert watched.breaker.acquire(at) is None
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert state(watched) is State.HALF_OPEN
    assert len(watched.permits(at, 100)) == OPTIONS.probes


def test_slow_answers_open_it_for_latency(watched: Watched) -> None:
    watched.pages(0.0, [Outcome.OK] * 10, slow=True)
    assert watched.way == [(State.OPEN, Reason.LATENCY)]
    assert watched.told[0].sentence == "100% of the last pages came too late"


def test_half_open_lets_a_few_through_and_closes_when_they_are_answered(watched: Watched) -> None:
    opened(watched)
    assert not watched.page(OPTIONS.cool_down_s - 0.1)
    permits = watched.permits(OPTIONS.cool_down_s, 100)
    assert len(permits) == OPTIONS.probes
    for permit in permits:
        assert state(watched) is State.HALF_OPEN
        permit.settle(11.0, Outcome.OK)
    assert watched.way[1:] == [(State.HALF_OPEN, Reason.ERROR), (State.CLOSED, Reason.ERROR)]
    assert len(watched.permits(11.0, 100)) == 100


@pytest.mark.parametrize("outcome", [Outcome.FAILURE, Outcome.OK])
def test_a_bad_probe_opens_it_again_for_longer(watched: Watched, outcome: Outcome) -> None:
    opened(watched)
    at, waits = 0.0, []
    for _ in range(6):
        waits.append(watched.breaker.retry_after_s(at))
        at += waits[-1]
        assert watched.page(at, outcome, slow=True)
        assert state(watched) is State.OPEN
    assert waits == [10, 20, 40, 80, 120, 120]


def test_an_engine_that_fails_again_at_once_is_tried_less_often(watched: Watched) -> None:
    at, waits = 0.0, []
    for _ in range(3):
        opened(watched, at)
        waits.append(watched.breaker.retry_after_s(at))
        at += waits[-1]
        watched.pages(at, [Outcome.OK] * OPTIONS.probes)
        assert state(watched) is State.CLOSED
    assert waits == [10, 20, 40]
    opened(watched, at + 60)
    assert watched.breaker.retry_after_s(at + 60) == 10


def test_what_was_let_through_before_does_not_count_after(watched: Watched) -> None:
    early = watched.permits(0.0, 20)
    opened(watched)
    watched.breaker.advance(10.0)
    for permit in early:
        permit.settle(10.0, Outcome.OK)
    assert state(watched) is State.HALF_OPEN
    late = watched.permits(10.0, 3)
    late[0].settle(10.0, Outcome.FAILURE)
    watched.breaker.advance(30.0)
    late[1].settle(30.0, Outcome.FAILURE)
    assert state(watched) is State.HALF_OPEN


def test_probes_still_in_a_hung_engine_are_not_joined_by_more(watched: Watched) -> None:
    opened(watched)
    hung = watched.permits(10.0, 3)
    watched.breaker.hold(11.0, Reason.ENGINE_HUNG, "no step for 10 s")
    watched.breaker.release(60.0, Reason.ENGINE_HUNG)
    assert state(watched) is State.HALF_OPEN
    assert watched.permits(60.0, 10) == []
    for permit in hung:
        permit.settle(61.0, Outcome.FAILURE)
    assert len(watched.permits(61.0, 10)) == 3


def test_a_permit_counts_once(watched: Watched) -> None:
    permit = watched.breaker.acquire(0.0)
    assert permit is not None
    with permit:
        for _ in range(20):
            permit.settle(0.0, Outcome.FAILURE)
    assert state(watched) is State.CLOSED


@pytest.mark.parametrize("reason", HELD)
def test_a_condition_holds_it_open_until_it_is_released(watched: Watched, reason: Reason) -> None:
    watched.breaker.hold(0.0, reason, "so it is")
    for second in range(0, 7200, 60):
        assert not watched.page(second)
    assert (watched.breaker.reason, watched.breaker.sentence) == (reason, "so it is")
    watched.breaker.release(7200.0, reason)
    assert state(watched) is State.HALF_OPEN
    for second in range(40):
        watched.page(7200.0 + second)
    assert state(watched) is State.CLOSED
    assert [t.reason for t in watched.told] == [reason] * 3


def test_the_worst_reason_is_told(watched: Watched) -> None:
    opened(watched)
    breaker = watched.breaker
    told = [breaker.reason]
    for reason in HELD:
        breaker.hold(1.0, reason, reason.value)
        told.append(breaker.reason)
    assert told == list(Reason)[:1] + list(HELD)
    for reason in reversed(HELD):
        breaker.release(2.0, reason)
        told.append(breaker.reason)
    assert told[len(HELD) + 1 :] == [*reversed(HELD[:-1]), Reason.ERROR]
    assert [transition.reason for transition in watched.told] == told


def test_what_to_do_with_a_page_depends_on_the_reason(watched: Watched) -> None:
    opened(watched)
    policies = [watched.breaker.policy]
    for reason in (Reason.THERMAL, Reason.ENGINE_HUNG):
        watched.breaker.hold(0.0, reason, reason.value)
        policies.append(watched.breaker.policy)
    assert policies == [OpenPolicy.REFUSE, OpenPolicy.DEGRADE, OpenPolicy.REFUSE]


def test_by_hand(watched: Watched) -> None:
    breaker = watched.breaker
    breaker.hold(0.0, Reason.MANUAL, "maintenance")
    assert not watched.page(3600.0)
    assert breaker.close(3600.0) is State.CLOSED
    assert watched.way == [(State.OPEN, Reason.MANUAL), (State.CLOSED, Reason.MANUAL)]
    opened(watched, 3700.0)
    assert breaker.close(3700.0) is State.CLOSED
    breaker.hold(3800.0, Reason.THERMAL, "hot")
    breaker.hold(3800.0, Reason.MANUAL, "maintenance")
    assert breaker.close(3800.0) is State.OPEN
    assert breaker.reason is Reason.THERMAL
    assert watched.way[-1] == (State.OPEN, Reason.THERMAL)


def test_after_heat_the_trial_goes_on_while_the_card_is_warm(watched: Watched) -> None:
    breaker = watched.breaker
    breaker.hold(0.0, Reason.THERMAL, "hot")
    breaker.release(40.0, Reason.THERMAL)
    for second in range(40, 100):
        breaker.prolong_trial(second)
        assert watched.page(second)
        assert state(watched) is State.HALF_OPEN
    watched.page(100.0)
    breaker.advance(99.0 + OPTIONS.thermal_trial_s)
    assert state(watched) is State.CLOSED
    assert max(b.at - a.at for a, b in pairwise(watched.told)) < 90


def test_when_to_come_back(watched: Watched) -> None:
    opened(watched)
    assert watched.breaker.retry_after_s(4.0) == pytest.approx(6.0)
    assert watched.breaker.retry_after_s(9.9) == 1.0
    watched.breaker.hold(9.9, Reason.ISOLATION, "leaks")
    assert watched.breaker.retry_after_s(9.9) == OPTIONS.held_retry_after_s


@pytest.mark.parametrize("jump_s", [-1e9, -3600.0, -1.0])
def test_a_clock_set_back_does_not_keep_it_open(watched: Watched, jump_s: float) -> None:
    opened(watched, 100.0)
    assert not watched.page(100.0 + jump_s)
    assert not watched.page(100.0 + jump_s + 9.0)
    assert watched.page(100.0 + jump_s + 10.0)


def test_a_clock_set_forward_ends_no_more_than_the_cool_down(watched: Watched) -> None:
    opened(watched)
    assert len(watched.permits(1e9, 100)) == OPTIONS.probes
    watched.breaker.hold(1e9, Reason.THERMAL, "hot")
    assert not watched.page(2e9)


def test_heat_is_tried_for_as_long_whatever_tripped_before(watched: Watched) -> None:
    opened(watched)
    breaker = watched.breaker
    breaker.hold(1.0, Reason.THERMAL, "hot")
    breaker.release(60.0, Reason.THERMAL)
    assert state(watched) is State.HALF_OPEN
    watched.pages(61.0, [Outcome.OK] * 5)
    assert state(watched) is State.HALF_OPEN
    breaker.prolong_trial(80.0)
    breaker.advance(79.0 + OPTIONS.thermal_trial_s)
    assert state(watched) is State.HALF_OPEN
    breaker.advance(80.0 + OPTIONS.thermal_trial_s)
    assert state(watched) is State.CLOSED
