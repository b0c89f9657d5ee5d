"""Admission: limits, turns, refusals; each rule by example, all of them by a random machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Sequence
from random import Random
from types import ModuleType
from typing import cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from hunyuan_ocr.traffic.admission import Admission
from hunyuan_ocr.traffic.classes import (
    DEFAULT_POLICIES,
    ClassPolicy,
    Priority,
    priority_of,
    timeout_s,
)
from hunyuan_ocr.traffic.cost import CostModel, Price, Sample, Speed, Work
from hunyuan_ocr.traffic.tickets import Asked, Moves, Refusal, State, Ticket

SPEED = Speed(0.5, 0.0, 0.0, 0.001, contention=0.0)
ROOMY = {
    priority: ClassPolicy(policy.share, 1e6, policy.timeout_s)
    for priority, policy in DEFAULT_POLICIES.items()
}
PAGE = Price(1.0, 1.0, 1.0)
NEVER = 1e9


def admission(
    limit: float = 4, *, reserved: float = 1, ahead: int = 2, roomy: bool = True
) -> Admission:
    return Admission(
        CostModel(SPEED, slot_tokens=1000),
        ROOMY if roomy else DEFAULT_POLICIES,
        limit_slots=limit,
        reserved_slots=reserved,
        pages_ahead=ahead,
        rng=Random(1),
    )


def asked(
    priority: Priority = Priority.STANDARD,
    tenant: str = "one",
    deadline: float = NEVER,
    prices: Sequence[Price] = (PAGE,),
) -> Asked:
    return Asked(priority, tenant, deadline, prices)


def submit(machine: Admission, now: float, wanted: Asked) -> list[Ticket]:
    """Admit and stand in line."""
    tickets = machine.submit(now, wanted)
    assert not isinstance(tickets, Refusal)
    for ticket in tickets:
        machine.join(ticket)
    return list(tickets)


def refused(machine: Admission, now: float, wanted: Asked) -> Refusal:
    outcome = machine.submit(now, wanted)
    assert isinstance(outcome, Refusal)
    return outcome


def run_until_idle(machine: Admission, now: float = 0.0) -> list[Ticket]:
    """Serve all that waits, one page at a time, each for what it was priced at; the order in
    which pages got their slots."""
    served: list[Ticket] = []
    running: list[Ticket] = []
    while True:
        moves = machine.advance(now)
        for ticket in moves.called:
            machine.make_ready(ticket)
        running += moves.started
        served += moves.started
        if not moves.called and not moves.started:
            if not running:
                return served
            machine.account(now, running[0], running[0].price.alone_s)
            machine.leave(now, running.pop(0))


def names(tickets: Iterable[Ticket]) -> list[str]:
    return [ticket.tenant for ticket in tickets]


def test_a_slot_is_taken_only_when_the_page_is_prepared() -> None:
    machine = admission(limit=4)
    (ticket,) = submit(machine, 0, asked())
    assert list(machine.advance(0).called) == [ticket]
    assert machine.held_slots == 0
    machine.make_ready(ticket)
    assert list(machine.advance(0).started) == [ticket]
    assert machine.held_slots == 1
    machine.leave(0, ticket)
    machine.leave(0, ticket)
    assert machine.held_slots == 0


def test_the_next_pages_are_prepared_while_others_hold_the_engine() -> None:
    machine = admission(limit=1, ahead=2)
    tickets = [submit(machine, 0, asked())[0] for _ in range(5)]
    assert list(machine.advance(0).called) == tickets[:2]
    machine.make_ready(tickets[0])
    moves = machine.advance(0)
    assert (list(moves.started), list(moves.called)) == ([tickets[0]], [tickets[2]])
    machine.make_ready(tickets[1])
    assert not machine.advance(0).started


def test_earliest_deadline_first_inside_a_tenant() -> None:
    machine = admission(ahead=1)
    deadlines = [50.0, 20.0, 90.0, 20.5, 10.0]
    for deadline in deadlines:
        submit(machine, 0, asked(deadline=deadline))
    assert [t.deadline for t in run_until_idle(machine)] == sorted(deadlines)


def test_tenants_take_turns_by_cost() -> None:
    """One asks for large pages, one for small ones: both get the same of the engine."""
    machine = admission(limit=1, ahead=1)
    for _ in range(40):
        submit(machine, 0, asked(tenant="large", prices=[Price(1, 4, 4)]))
    for _ in range(160):
        submit(machine, 0, asked(tenant="small"))
    first = run_until_idle(machine)[:100]
    cost = {name: sum(t.cost for t in first if t.tenant == name) for name in ("large", "small")}
    assert cost["large"] == pytest.approx(cost["small"], rel=0.1)


def test_a_flood_does_not_delay_another_tenant() -> None:
    machine = admission(limit=1, ahead=1)
    for _ in range(500):
        submit(machine, 0, asked(tenant="flood"))
    (called,) = machine.advance(0).called
    submit(machine, 0, asked(tenant="modest"))
    machine.make_ready(called)
    assert names(run_until_idle(machine)).index("modest") <= 2


def test_leaving_and_coming_back_gains_no_turn() -> None:
    machine = admission(limit=1, ahead=1)
    (early,) = submit(machine, 0, asked(tenant="again"))
    for _ in range(20):
        submit(machine, 0, asked(tenant="patient"))
    for _ in range(10):
        (called,) = machine.advance(0).called
        machine.leave(0, called)
    machine.leave(0, early)
    for _ in range(10):
        submit(machine, 0, asked(tenant="again"))
    order = names(run_until_idle(machine))
    assert order[:2] in (["again", "patient"], ["patient", "again"])
    assert order[2:4] in (["again", "patient"], ["patient", "again"])


def test_callers_that_come_and_go_leave_nothing_behind() -> None:
    """Also while nobody gets a turn."""
    machine = admission(limit=1, ahead=0)
    submit(machine, 0, asked(tenant="waits"))
    for number in range(20_000):
        (ticket,) = submit(machine, 0, asked(tenant=str(number % 7000)))
        machine.leave(0, ticket)
    assert deep_size(machine) < 500_000
    assert machine.waiting(Priority.STANDARD) == 1


def deep_size(root: object) -> int:
    """Bytes of all that can be reached from `root`, modules and classes aside."""
    seen: set[int] = set()
    reached, total = [root], 0
    while reached:
        thing = reached.pop()
        if id(thing) in seen or isinstance(thing, (type, ModuleType)):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        reached += gc.get_referents(thing)
    return total


def test_classes_get_their_shares_while_all_wait() -> None:
    machine = admission(limit=1, reserved=0, ahead=1)
    for priority in Priority:
        for _ in range(1000):
            submit(machine, 0, asked(priority))
    first = run_until_idle(machine)[:1000]
    counts = {p: sum(t.priority is p for t in first) for p in Priority}
    assert counts[Priority.INTERACTIVE] == pytest.approx(700, abs=10)
    assert counts[Priority.STANDARD] == pytest.approx(250, abs=10)
    assert counts[Priority.BATCH] == pytest.approx(50, abs=5)


def start_all(machine: Admission, now: float = 0.0) -> list[Ticket]:
    """Prepare whatever is called until nothing moves; who holds slots then."""
    started: list[Ticket] = []
    while True:
        moves = machine.advance(now)
        for ticket in moves.called:
            machine.make_ready(ticket)
        started += moves.started
        if not moves.called and not moves.started:
            return started


def test_batch_leaves_the_reserved_slots_to_others() -> None:
    machine = admission(limit=8, reserved=3)
    for _ in range(20):
        submit(machine, 0, asked(Priority.BATCH))
    assert len(start_all(machine)) == 5
    for _ in range(20):
        submit(machine, 0, asked(Priority.INTERACTIVE))
    assert len(start_all(machine)) == 3


def test_batch_stays_within_its_slots_however_long_its_pages_take() -> None:
    machine = admission(limit=8, reserved=3)
    for _ in range(20):
        submit(machine, 0, asked(Priority.BATCH))
    assert len(start_all(machine)) == 5
    assert start_all(machine, 1000.0) == []


def test_batch_takes_no_slot_that_would_leave_too_few_free() -> None:
    """While interactive pages hold slots, batch holds fewer, beyond its share."""
    machine = admission(limit=8, reserved=3)
    interactive = [submit(machine, 0, asked(Priority.INTERACTIVE))[0] for _ in range(4)]
    assert start_all(machine) == interactive
    for _ in range(20):
        submit(machine, 0, asked(Priority.BATCH, prices=[Price(1.0, 9.0, 9.0)]))
    assert len(start_all(machine)) == 1


def test_batch_gets_its_share_beside_a_full_interactive_class() -> None:
    machine = admission(limit=10, reserved=4)
    clock, served = 0.0, {Priority.INTERACTIVE: 0, Priority.BATCH: 0}
    running: list[Ticket] = []
    for priority in served:
        for _ in range(4000):
            submit(machine, 0, asked(priority))
    for _ in range(3000):
        clock += 0.1
        started = start_all(machine, clock)
        running += started
        for ticket in started:
            served[ticket.priority] += 1
        machine.leave(clock, running.pop(0))
    assert served[Priority.BATCH] / sum(served.values()) >= 0.045


def test_batch_goes_on_however_small_the_limit() -> None:
    machine = admission(limit=1, reserved=6)
    submit(machine, 0, asked(Priority.BATCH))
    assert len(start_all(machine)) == 1


def test_a_large_page_waits_for_its_slots_and_is_not_passed() -> None:
    machine = admission(limit=4)
    small = [submit(machine, 0, asked())[0] for _ in range(3)]
    assert start_all(machine) == small
    (large,) = submit(machine, 0, asked(prices=[Price(3.0, 1.0, 3.0)]))
    later = [submit(machine, 0, asked())[0] for _ in range(3)]
    assert start_all(machine) == []
    machine.leave(0, small[0])
    assert start_all(machine) == []
    machine.leave(0, small[1])
    assert start_all(machine) == [large]
    machine.leave(0, small[2])
    assert start_all(machine) == [later[0]]


def test_a_page_larger_than_the_limit_has_the_engine_to_itself() -> None:
    machine = admission(limit=4)
    (huge,) = submit(machine, 0, asked(prices=[Price(9.0, 1.0, 9.0)]))
    assert start_all(machine) == [huge]
    submit(machine, 0, asked())
    assert start_all(machine) == []


def test_what_can_no_longer_be_done_in_time_is_dropped_before_it_starts() -> None:
    machine = admission(limit=1)
    first, late, patient = (submit(machine, 0, asked(deadline=d))[0] for d in (9.0, 10.0, 99.0))
    assert start_all(machine) == [first]
    machine.leave(0, first)
    moves = machine.advance(9.5)
    assert list(moves.dropped) == [late]
    assert late.state is State.GONE
    assert list(moves.started) == [patient]


def fill(machine: Admission, wanted: Asked) -> Refusal:
    """Ask until refused."""
    while not isinstance(outcome := machine.submit(0, wanted), Refusal):
        for ticket in outcome:
            machine.join(ticket)
    return outcome


def test_refuses_at_once_what_would_miss_its_deadline() -> None:
    machine = admission(limit=1)
    refusal = fill(machine, asked(deadline=12.7))  # 12 s of work, and a twentieth in reserve
    assert refusal.reason == "deadline_unreachable"
    assert refusal.position == machine.waiting(Priority.STANDARD) == 11
    assert refusal.predicted_wait_s == pytest.approx(12)
    assert refusal.retry_after_s >= 1
    assert not isinstance(machine.submit(0, asked(deadline=1000.0)), Refusal)


def test_the_more_urgent_page_of_a_tenant_finds_its_own_later_ones_behind_it() -> None:
    machine = admission(limit=1)
    fill(machine, asked(deadline=12.0))
    assert not isinstance(machine.submit(0, asked(deadline=5.0)), Refusal)


def test_another_tenant_is_not_refused_for_the_flood_of_one() -> None:
    machine = admission(limit=1)
    fill(machine, asked(tenant="flood", deadline=12.0))
    assert not isinstance(machine.submit(0, asked(tenant="modest", deadline=12.0)), Refusal)


def test_a_document_is_refused_as_a_whole_when_its_last_page_would_be_late() -> None:
    machine = admission(limit=1)
    assert refused(machine, 0, asked(prices=[PAGE] * 20, deadline=10.0)).predicted_wait_s > 10
    assert machine.waiting(Priority.STANDARD) == 0
    submit(machine, 0, asked(prices=[PAGE] * 20, deadline=100.0))


def test_a_full_queue_refuses_pages_of_every_size_and_before_the_body() -> None:
    machine = admission(limit=4, roomy=False)
    interactive = Priority.INTERACTIVE
    fill(machine, asked(interactive))
    for prices in ([PAGE], [Price(1, 0.01, 0.01)], []):
        refusal = refused(machine, 0, asked(interactive, prices=prices))
        assert refusal.reason == "queue_full"
        assert refusal.retry_after_s >= 1
    assert not isinstance(machine.submit(0, asked(Priority.BATCH)), Refusal)


def test_a_flood_leaves_room_in_the_queue_for_others() -> None:
    machine = admission(limit=40, roomy=False)
    assert fill(machine, asked(tenant="flood")).reason == "queue_full"
    for newcomer in range(5):
        assert not isinstance(machine.submit(0, asked(tenant=str(newcomer))), Refusal)


def test_an_idle_engine_takes_a_document_larger_than_its_queue() -> None:
    machine = admission(limit=4, roomy=False)
    prices = [PAGE] * 40
    assert not isinstance(machine.submit(0, asked(Priority.INTERACTIVE, prices=prices)), Refusal)


def test_those_sent_away_are_not_all_told_the_same_time() -> None:
    machine = admission(limit=1)
    fill(machine, asked(deadline=12.0))
    times = [refused(machine, 0, asked(deadline=12.0)).retry_after_s for _ in range(20)]
    assert max(times) > min(times) + 10
    assert all(1 <= t <= 60 for t in times)


def test_waits_are_predicted_by_the_speed_of_the_engine() -> None:
    model = CostModel(SPEED, slot_tokens=1000)
    machine = Admission(model, ROOMY, limit_slots=2, reserved_slots=0, pages_ahead=1, rng=Random(1))
    submit(machine, 0, asked(prices=[PAGE] * 20))
    fast = refused(machine, 0, asked(tenant="other", deadline=0.5)).predicted_wait_s
    work = Work(1, 1, 500)
    for second in range(50):
        model.observe(float(second), Sample(work, 0, 3.0), trusted=True)
    slow = refused(machine, 50, asked(tenant="other", deadline=50.5)).predicted_wait_s
    assert slow == pytest.approx(3 * fast, rel=0.1)


def test_long_documents_are_batch_unless_asked_otherwise() -> None:
    assert priority_of(None, 1) is Priority.STANDARD
    assert priority_of(None, 20) is Priority.STANDARD
    assert priority_of(None, 21) is Priority.BATCH
    assert priority_of(Priority.INTERACTIVE, 21) is Priority.INTERACTIVE


def test_nobody_gets_more_time_than_batch() -> None:
    assert timeout_s(DEFAULT_POLICIES, Priority.INTERACTIVE, None) == 30
    assert timeout_s(DEFAULT_POLICIES, Priority.INTERACTIVE, 5) == 5
    assert timeout_s(DEFAULT_POLICIES, Priority.INTERACTIVE, 9999) == 600


def test_a_long_document_fills_the_queue_for_its_own_tenant_alone() -> None:
    machine = admission(limit=4, roomy=False)
    document = asked(Priority.INTERACTIVE, "greedy", 600.0, [PAGE] * 500)
    assert not isinstance(machine.submit(0, document), Refusal)
    assert refused(machine, 0, asked(Priority.INTERACTIVE, "greedy")).reason == "queue_full"
    for number in range(3):
        submit(machine, 0, asked(Priority.INTERACTIVE, f"other-{number}", 30.0))
    assert machine.pressure(Priority.INTERACTIVE) < 2
    assert machine.fullness(Priority.INTERACTIVE) > 100


def test_an_idle_engine_takes_what_fits_alone_though_not_beside_a_full_one() -> None:
    model = CostModel(Speed(2.5, 0, 0, 0, 0.3), slot_tokens=1000)
    machine = Admission(
        model, DEFAULT_POLICIES, limit_slots=4, reserved_slots=1, pages_ahead=2, rng=Random(1)
    )
    (long,) = submit(machine, 0, asked(deadline=60.0, prices=[Price(1, 40.0, 40.0)]))
    assert start_all(machine) == [long]
    assert refused(machine, 0, asked(deadline=42.0, prices=[Price(1, 40.0, 40.0)]))


def test_a_deadline_shorter_than_the_page_says_so() -> None:
    refusal = refused(admission(), 0, asked(deadline=0.5))
    assert (refusal.reason, refusal.alone_s) == ("time_too_short", 1.0)
    assert refusal.retry_after_s > 30


def test_batch_gets_at_least_half_of_a_small_limit() -> None:
    machine = admission(limit=16, reserved=7)
    machine.limit_slots = 8
    for _ in range(20):
        submit(machine, 0, asked(Priority.BATCH))
    assert len(start_all(machine)) == 5


def test_a_class_that_was_held_back_saves_up_no_turns() -> None:
    """Batch beside interactive pages, on an engine that is faster than it is taken for."""
    machine = admission(limit=16, reserved=7, ahead=4)
    machine._model.scale.factor = 5.0
    clock, virtual, running = 0.0, 0.0, list[Ticket]()
    for _ in range(1000):
        clock += 0.1
        for priority in (Priority.INTERACTIVE, Priority.BATCH):
            while machine.waiting(priority) < 8:
                submit(machine, clock, asked(priority))
        while running and clock - running[0].started_at >= 0.9:
            machine.leave(clock, running.pop(0))
        running += start_all(machine, clock)
        assert machine._virtual >= virtual
        virtual = machine._virtual
    lag = virtual - machine._lanes[Priority.BATCH].tag.start
    assert lag < 30, "it would pass the others until it had made up for all that time"


def test_classes_and_tenants_get_equal_parts_of_what_is_used_and_not_of_what_was_expected() -> None:
    """Pages of the same price, of which one tenant's hold their slots ten times as long."""
    machine = admission(limit=8, ahead=4)
    clock, used = 0.0, {"long": 0.0, "short": 0.0}
    running: list[Ticket] = []
    waiting = dict.fromkeys(used, 0)
    while clock < 400:
        clock += 0.1
        for tenant in waiting:
            while waiting[tenant] < 8:
                submit(machine, clock, asked(tenant=tenant))
                waiting[tenant] += 1
        for ticket in list(running):
            held_s = clock - ticket.started_at
            if held_s >= (10 if ticket.tenant == "long" else 1):
                machine.leave(clock, ticket)
                running.remove(ticket)
                used[ticket.tenant] += held_s
        started = start_all(machine, clock)
        running += started
        for ticket in started:
            waiting[ticket.tenant] -= 1
    assert used["long"] == pytest.approx(used["short"], rel=0.15)


prices = st.builds(
    lambda slots, alone_s: Price(slots, alone_s, slots * alone_s),
    st.floats(1, 6),
    st.floats(0.01, 3),
)


class AdmissionMachine(RuleBasedStateMachine):
    """Random callers, cancels, faults, limits and clocks; every invariant after every step."""

    tickets = Bundle("tickets")

    def __init__(self) -> None:
        super().__init__()
        self.machine = Admission(
            CostModel(SPEED, slot_tokens=1000),
            DEFAULT_POLICIES,
            limit_slots=6,
            reserved_slots=2,
            pages_ahead=2,
            rng=Random(1),
        )
        self.now = 0.0
        self.live: list[Ticket] = []

    @rule(
        target=tickets,
        priority=st.sampled_from(Priority),
        tenant=st.sampled_from("abc"),
        time_s=st.floats(0, 100, allow_subnormal=False),
        wanted=st.lists(prices, min_size=1, max_size=3),
    )
    def submit(
        self, priority: Priority, tenant: str, time_s: float, wanted: list[Price]
    ) -> list[Ticket]:
        before = self.machine.waiting(priority)
        outcome = self.machine.submit(self.now, Asked(priority, tenant, self.now + time_s, wanted))
        if isinstance(outcome, Refusal):
            assert outcome.retry_after_s >= 1
            assert outcome.predicted_wait_s >= 0
            assert 0 <= outcome.position <= before
            return []
        self.live += outcome
        return list(outcome)

    @rule(booked=tickets)
    def join(self, booked: list[Ticket]) -> None:
        for ticket in booked:
            if ticket.state is State.BOOKED:
                self.machine.join(ticket)

    @rule(chosen=st.randoms(use_true_random=False))
    def make_ready(self, chosen: Random) -> None:
        if called := self.in_state(State.CALLED):
            self.machine.make_ready(chosen.choice(called))

    @rule(chosen=st.randoms(use_true_random=False))
    def leave(self, chosen: Random) -> None:
        """A client cancels, an engine fails or answers: all look the same from here."""
        if self.live:
            ticket = self.live.pop(chosen.randrange(len(self.live)))
            self.machine.leave(self.now, ticket)

    @rule()
    def advance(self) -> None:
        lines = self.lines()
        held = {p: self.held(p) for p in Priority}
        moves = self.machine.advance(self.now)
        self.check_calls(lines, moves)
        self.check_starts(held, moves)
        for ticket in moves.dropped:
            assert ticket.deadline < self.now + 100
            self.live.remove(ticket)

    @rule(limit=st.floats(1, 12))
    def change_limit(self, limit: float) -> None:
        self.machine.limit_slots = limit

    @rule(seconds=st.floats(-5, 50, allow_subnormal=False))
    def jump(self, seconds: float) -> None:
        self.now += seconds

    def in_state(self, *states: State) -> list[Ticket]:
        return [ticket for ticket in self.live if ticket.state in states]

    def held(self, priority: Priority) -> float:
        running = self.in_state(State.RUNNING)
        return sum(t.price.slots for t in running if t.priority is priority)

    def lines(self) -> dict[tuple[Priority, str], list[Ticket]]:
        lines: dict[tuple[Priority, str], list[Ticket]] = {}
        for ticket in self.in_state(State.WAITING):
            lines.setdefault((ticket.priority, ticket.tenant), []).append(ticket)
        return lines

    def check_calls(self, lines: dict[tuple[Priority, str], list[Ticket]], moves: Moves) -> None:
        """Nobody of a tenant is passed by one of its own with a later deadline."""
        taken = {*moves.called, *moves.dropped}
        for ticket in moves.called:
            for other in lines[ticket.priority, ticket.tenant]:
                assert other in taken or (other.deadline, other.number) > (
                    ticket.deadline,
                    ticket.number,
                )

    def check_starts(self, held: dict[Priority, float], moves: Moves) -> None:
        """Starting never takes more than is free; one page alone may be larger than the limit."""
        total = sum(held.values())
        for ticket in moves.started:
            slots = ticket.price.slots
            assert not total or total + slots <= self.machine.limit_slots + 1e-6
            total += slots
            if ticket.priority is Priority.BATCH:
                limit = self.machine.limit_slots
                cap = max(1.0, limit - min(2, (limit - 1) // 2))
                assert not held[Priority.BATCH] or held[Priority.BATCH] + slots <= cap + 1e-6
                held[Priority.BATCH] += slots

    @invariant()
    def slots_are_accounted_for(self) -> None:
        assert self.machine.held_slots == pytest.approx(sum(map(self.held, Priority)), abs=1e-6)

    @invariant()
    def pages_are_accounted_for(self) -> None:
        for priority in Priority:
            without_slot = [
                t
                for t in self.live
                if t.priority is priority and t.state not in (State.RUNNING, State.GONE)
            ]
            assert self.machine.waiting(priority) == len(without_slot)

    def teardown(self) -> None:
        """Whatever happened, all who stay in line are served, and nothing is left over."""
        self.machine.limit_slots = 6
        for ticket in self.in_state(State.BOOKED):
            self.machine.leave(self.now, ticket)
        for ticket in self.in_state(State.CALLED):
            self.machine.make_ready(ticket)
        for ticket in self.in_state(State.RUNNING):
            self.machine.leave(self.now, ticket)
        self.now = -1000.0  # nothing is late
        waiting = set(self.in_state(State.WAITING, State.READY))
        assert set(run_until_idle(self.machine, self.now)) == waiting
        assert self.machine.held_slots == 0
        assert all(self.machine.waiting(priority) == 0 for priority in Priority)


AdmissionMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None
)
TestAdmissionMachine = cast(type, AdmissionMachine.TestCase)
