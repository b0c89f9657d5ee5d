"""The circuit breaker before the engine: closed, open, half-open.

It opens for two kinds of reasons. Outcomes of pages trip it (`error`, `latency`): it tries again
after a cool-down. Conditions that somebody watches hold it open (`thermal`, `engine_hung`,
`isolation`, `manual`) for as long as they last. Then a few real pages are let through, and it
closes when these were answered.

    permit = breaker.acquire(clock())
    if permit is None:                              # see `reason`, `policy`, `retry_after_s`
        ...
    with permit:                                    # leaving unsettled: as if never asked
        answer = await read()
        permit.settle(clock(), Outcome.OK, slow=trip.is_slow(...))

No clock, no tasks, no I/O; used by one loop. A restarted process begins closed.
"""

from __future__ import annotations

from collections.abc import Callable

from hunyuan_ocr.traffic.breaker_states import (
    BreakerOptions,
    OpenPolicy,
    Outcome,
    Permit,
    Reason,
    State,
    Transition,
)
from hunyuan_ocr.traffic.outcome_window import OutcomeWindow, SteadyTime

_BY_SEVERITY = tuple(Reason)
_TRIPS = (Reason.ERROR, Reason.LATENCY)
_FATE = {Reason.ERROR: "failed", Reason.LATENCY: "came too late"}
_BACKOFF = 2.0


class Breaker:
    """`on_transition` hears of every change of state or, while it is open, of its reason, once."""

    def __init__(
        self,
        options: BreakerOptions,
        on_transition: Callable[[Transition], None] = lambda _: None,
    ) -> None:
        self._options = options
        self._on_transition = on_transition
        self._time = SteadyTime()
        self._failures = OutcomeWindow(options.window_s, options.min_outcomes)
        self._slow = OutcomeWindow(options.window_s, options.min_outcomes)
        self._reasons: dict[Reason, str] = {}
        self._opened_for = Reason.ERROR  # the last that it was open for
        self._heated = False  # since it was last closed, whatever else it was open for
        self._cool_down_s = options.cool_down_s
        self._retry_at_s = 0.0
        self._closed_at_s = -float("inf")
        self._tried_since_s = 0.0
        self._trial_until_s = 0.0
        self._answered = 0
        self._period = 0  # of one state; outcomes of pages let through in another do not count
        self.probing = 0  # pages in the engine that were let through half-open
        self.state = State.CLOSED

    @property
    def reason(self) -> Reason | None:
        """The worst of what holds it open or tripped it; None where it is closed."""
        return None if self.state is State.CLOSED else self._opened_for

    @property
    def sentence(self) -> str:
        """Why it is not closed, for people; empty where it is."""
        reason = self.reason
        return "" if reason is None else self._reasons.get(reason, "it is being tried again")

    @property
    def policy(self) -> OpenPolicy:
        """What to do with a page that gets no permit now."""
        reason = self.reason
        if reason is None:
            return OpenPolicy.REFUSE
        return self._options.policies.get(reason, OpenPolicy.REFUSE)

    def acquire(self, now: float) -> Permit | None:
        """A permit for one page, to be settled; None where it may not go to the engine."""
        if self.advance(now) is State.OPEN:
            return None
        period, probe = self._period, self.state is State.HALF_OPEN
        if probe and self.probing >= self._options.probes:
            return None
        self.probing += probe

        def settle(at: float | None, outcome: Outcome, slow: bool) -> None:
            self.probing -= probe
            if at is None or outcome is Outcome.IGNORED or period != self._period:
                return
            self._count(at, outcome, slow)

        return Permit(settle)

    def advance(self, now: float) -> State:
        """Do what is due by now; to be called about once a second too, when nobody asks."""
        time_s = self._time.advance(now)
        if self.state is State.OPEN and not self._held and time_s >= self._retry_at_s:
            self._tried_since_s = time_s
            trial_s = self._options.thermal_trial_s if self._heated else 0.0
            self._trial_until_s = time_s + trial_s
            self._reasons.clear()
            self._move(now, State.HALF_OPEN, self._opened_for, "a few pages are let through")
        answered = self._answered >= self._options.probes
        if self.state is State.HALF_OPEN and answered and time_s >= self._trial_until_s:
            self._close(now, self._opened_for, f"{self._answered} pages were answered")
        return self.state

    def hold(self, now: float, reason: Reason, sentence: str) -> None:
        """A condition lasts from now on, until `release`; to be told again does no harm."""
        self._time.advance(now)
        self._open(now, reason, sentence)

    def release(self, now: float, reason: Reason) -> None:
        """A condition lasts no longer."""
        if reason not in _TRIPS:
            before = self._opened_for
            self._drop(reason)
            self._tell_reason(now, before)
        self.advance(now)

    def prolong_trial(self, now: float) -> None:
        """The card is warm: half-open after a thermal opening, the trial begins anew."""
        time_s = self._time.advance(now)
        if self._heated:
            longest_s = self._tried_since_s + self._options.thermal_trial_max_s
            self._trial_until_s = min(time_s + self._options.thermal_trial_s, longest_s)

    def close(self, now: float) -> State:
        """By hand: end a manual opening and any cool-down. Other conditions go on to hold."""
        self._time.advance(now)
        before = self._opened_for
        self._drop(Reason.MANUAL, *_TRIPS)
        if self.state is not State.CLOSED and not self._reasons:
            self._close(now, Reason.MANUAL, "closed by hand")
        else:
            self._tell_reason(now, before)
        return self.state

    def retry_after_s(self, now: float) -> float:
        """When a refused caller should come back, before jitter."""
        left_s = self._retry_at_s - self._time.advance(now)
        if self.state is not State.OPEN:
            return self._options.probing_retry_after_s
        return max(left_s, self._options.held_retry_after_s if self._held else 1.0)

    @property
    def _held(self) -> bool:
        return any(reason not in _TRIPS for reason in self._reasons)

    def _count(self, now: float, outcome: Outcome, slow: bool) -> None:
        time_s = self._time.advance(now)
        failed = outcome is Outcome.FAILURE
        if self.state is State.HALF_OPEN:
            if slow and self._heated and time_s < self._trial_until_s:
                return  # too soon after heat to be the engine's fault, and no sign of health
            if failed or slow:
                reason = Reason.ERROR if failed else Reason.LATENCY
                self._open(now, reason, "a page that was let through " + _FATE[reason])
            else:
                self._answered += 1
                self.advance(now)
            return
        self._failures.add(time_s, bad=failed)
        if not failed:
            self._slow.add(time_s, bad=slow)
        for reason, window, limit in (
            (Reason.ERROR, self._failures, self._options.failure_share),
            (Reason.LATENCY, self._slow, self._options.slow_share),
        ):
            share = window.bad_share(time_s)
            if share >= limit:
                self._open(now, reason, f"{share:.0%} of the last pages {_FATE[reason]}")
                return

    def _drop(self, *reasons: Reason) -> None:
        for reason in reasons:
            self._reasons.pop(reason, None)
        self._choose_worst()

    def _choose_worst(self) -> None:
        """Of none, the last one goes on to be told."""
        self._opened_for = max(self._reasons, key=_BY_SEVERITY.index, default=self._opened_for)

    def _open(self, now: float, reason: Reason, sentence: str) -> None:
        self._reasons[reason] = sentence
        self._heated |= reason is Reason.THERMAL
        told = self._opened_for
        self._choose_worst()
        before = self.state
        if before is State.OPEN:
            self._tell_reason(now, told)
            return
        options, time_s = self._options, self._time.now_s
        again = before is State.HALF_OPEN or time_s - self._closed_at_s < options.window_s
        longer_s = min(self._cool_down_s * _BACKOFF, options.cool_down_max_s)
        self._cool_down_s = longer_s if again and not self._held else options.cool_down_s
        self._retry_at_s = time_s + self._cool_down_s
        self._move(now, State.OPEN, reason, sentence)

    def _tell_reason(self, now: float, before: Reason) -> None:
        """It stays open, and now for another reason."""
        worst = self._opened_for
        if self.state is State.OPEN and worst is not before and worst in self._reasons:
            sentence = self._reasons[worst]
            self._on_transition(Transition(State.OPEN, State.OPEN, worst, now, sentence))

    def _close(self, now: float, reason: Reason, sentence: str) -> None:
        self._closed_at_s = self._time.now_s
        self._heated = False
        self._move(now, State.CLOSED, reason, sentence)

    def _move(self, now: float, after: State, reason: Reason, sentence: str) -> None:
        before, self.state = self.state, after
        self._period += 1
        self._answered = 0
        self._failures.clear()
        self._slow.clear()
        self._on_transition(Transition(before, after, reason, now, sentence))
