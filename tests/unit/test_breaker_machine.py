"""The breaker under anything that may happen, in any order and on a clock that jumps."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hunyuan_ocr.traffic.breaker import Breaker
from hunyuan_ocr.traffic.breaker_states import (
    BreakerOptions,
    Outcome,
    Permit,
    Reason,
    State,
    Transition,
)

HELD = (Reason.THERMAL, Reason.ENGINE_HUNG, Reason.ISOLATION, Reason.MANUAL)
WAYS = {
    (State.CLOSED, State.OPEN),
    (State.OPEN, State.HALF_OPEN),
    (State.HALF_OPEN, State.OPEN),
    (State.HALF_OPEN, State.CLOSED),
    (State.OPEN, State.CLOSED),  # by hand alone
    (State.OPEN, State.OPEN),  # for another reason
}
OPTIONS = BreakerOptions(min_outcomes=4, probes=2)


class BreakerMachine(RuleBasedStateMachine):
    """Pages come and go, conditions come and go, somebody turns the clock."""

    @initialize(start=st.sampled_from(State))
    def begin(self, start: State) -> None:
        self.now = 0.0
        self.restart()
        if start is not State.CLOSED:
            self.condition_begins(Reason.ENGINE_HUNG)
        if start is State.HALF_OPEN:
            self.it_is_tried_again()

    def restart(self) -> None:
        self.told: list[Transition] = []
        self.breaker = Breaker(OPTIONS, self.told.append)
        self.in_flight: list[tuple[Permit, State]] = []
        self.holding: set[Reason] = set()
        assert self.breaker.state is State.CLOSED

    @precondition(lambda self: self.breaker.state is not State.CLOSED and not self.in_flight)
    @rule()
    def a_new_process_begins_closed(self) -> None:
        self.restart()

    @rule(seconds=st.sampled_from([0.01, 1.0, 9.0, 31.0, 3600.0, -0.5, -3600.0]))
    def clock_moves(self, seconds: float) -> None:
        self.now += seconds
        self.breaker.advance(self.now)

    @rule(pages=st.integers(1, 6))
    def pages_come(self, pages: int) -> None:
        for _ in range(pages):
            permit = self.breaker.acquire(self.now)
            if permit is None:
                assert self.breaker.state is not State.CLOSED
            else:
                self.in_flight.append((permit, self.breaker.state))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome), slow=st.booleans())
    def page_ends(self, data: st.DataObject, outcome: Outcome, slow: bool) -> None:
        permit, _ = self._one(data)
        before, told = self.breaker.state, len(self.told)
        permit.settle(self.now, outcome, slow=slow)
        if outcome is Outcome.IGNORED:
            assert (self.breaker.state, len(self.told)) == (before, told)
        again = self.breaker.state, self.breaker.probing
        permit.settle(self.now, Outcome.FAILURE)
        assert (self.breaker.state, self.breaker.probing) == again

    @precondition(lambda self: self.in_flight)
    @rule(cancelled=st.booleans())
    def pages_leave(self, cancelled: bool) -> None:
        """All of them, with IGNORED or without a word: nothing happens but that places are free."""
        before, told = self.breaker.state, len(self.told)
        while self.in_flight:
            permit, _ = self.in_flight.pop()
            with permit:
                if cancelled:
                    permit.settle(self.now, Outcome.IGNORED)
        assert (self.breaker.state, len(self.told)) == (before, told)
        assert self.breaker.probing == 0

    @rule(reason=st.sampled_from(HELD))
    def condition_begins(self, reason: Reason) -> None:
        self.breaker.hold(self.now, reason, f"it is {reason}")
        self.holding.add(reason)
        assert self.breaker.reason is max(self.holding, key=list(Reason).index)

    @rule(reason=st.sampled_from(HELD))
    def condition_ends(self, reason: Reason) -> None:
        self.breaker.release(self.now, reason)
        self.holding.discard(reason)

    @precondition(lambda self: self.breaker.state is State.OPEN)
    @rule()
    def it_is_tried_again(self) -> None:
        """All conditions end and the longest cool-down passes."""
        for reason in sorted(self.holding):
            self.breaker.release(self.now, reason)
        self.holding.clear()
        self.now += OPTIONS.cool_down_max_s
        assert self.breaker.advance(self.now) is State.HALF_OPEN

    @rule()
    def card_is_warm(self) -> None:
        self.breaker.prolong_trial(self.now)

    @precondition(lambda self: self.breaker.state is not State.CLOSED)
    @rule()
    def closed_by_hand(self) -> None:
        self.breaker.close(self.now)
        self.holding.discard(Reason.MANUAL)
        assert (self.breaker.state is State.CLOSED) is not bool(self.holding)

    def teardown(self) -> None:
        """Whatever happened: once all is well again, all pages are let through."""
        if not hasattr(self, "breaker"):
            return
        for permit, _ in self.in_flight:
            permit.settle(self.now, Outcome.IGNORED)
        if self.breaker.state is State.OPEN:
            self.it_is_tried_again()
        for _ in range(int(OPTIONS.thermal_trial_s) + 2):
            self.now += 1
            one = self.breaker.acquire(self.now)
            if one is not None:
                one.settle(self.now, Outcome.OK)
        assert self.breaker.state is State.CLOSED

    def _one(self, data: st.DataObject) -> tuple[Permit, State]:
        return self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1)))

    @invariant()
    def never_more_probes_than_allowed(self) -> None:
        probes = sum(state is State.HALF_OPEN for _, state in self.in_flight)
        assert self.breaker.probing == probes <= OPTIONS.probes

    @invariant()
    def open_while_a_condition_holds(self) -> None:
        if self.holding:
            assert self.breaker.state is State.OPEN

    @invariant()
    def every_transition_is_told_with_a_reason(self) -> None:
        before, reason = State.CLOSED, None
        for told in self.told:
            assert told.before is before
            assert (told.before, told.after) in WAYS
            assert told.reason in Reason
            assert told.sentence
            if told.before is told.after:  # it stays open, for another reason
                assert told.reason is not reason
            before, reason = told.after, told.reason
        assert self.breaker.state is before

    @invariant()
    def a_reason_exactly_while_not_closed(self) -> None:
        assert (self.breaker.reason is None) is (self.breaker.state is State.CLOSED)
        assert bool(self.breaker.sentence) is (self.breaker.state is not State.CLOSED)

    @invariant()
    def says_when_to_come_back(self) -> None:
        assert 0 < self.breaker.retry_after_s(self.now) <= OPTIONS.cool_down_max_s


TestBreaker = BreakerMachine.TestCase
TestBreaker.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
