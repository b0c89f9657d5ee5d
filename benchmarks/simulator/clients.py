"""Clients: they ask, wait, give up at their deadline, and may come back when refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from benchmarks.simulator.events import Timeline, Timer
from benchmarks.simulator.policies import Policy
from benchmarks.simulator.workload import Request

# never: a refusal is final. honour: come back after Retry-After. hasty: one second later, told
# or not.
Retries = Literal["never", "honour", "hasty"]
_HASTY_S = 1.0


@dataclass(frozen=True, slots=True)
class RetryRule:
    manner: Retries = "never"
    attempts_max: int = 20


NO_RETRIES = RetryRule()


class Clients:
    """Sends requests to a policy and keeps the record of what came of every attempt."""

    def __init__(self, timeline: Timeline, rule: RetryRule, rng: Random) -> None:
        self._timeline = timeline
        self._rule = rule
        self._rng = rng
        self._deadlines: dict[Request, Timer] = {}
        self.policy: Policy | None = None
        self.record: list[Request] = []

    def send(self, request: Request) -> None:
        assert self.policy is not None
        self.record.append(request)
        self._deadlines[request] = self._timeline.at(
            request.deadline, lambda: self._give_up(request)
        )
        self.policy.arrive(request)

    def answered(self, request: Request) -> None:
        self._end(request, "answered")

    def refused(self, request: Request, retry_after_s: float | None) -> None:
        self._end(request, "refused")
        if self._rule.manner == "never" or request.attempt >= self._rule.attempts_max:
            return
        wait_s = _HASTY_S * self._rng.uniform(0.5, 1.5)
        if self._rule.manner == "honour" and retry_after_s is not None:
            wait_s = retry_after_s
        self._later(request, wait_s)

    def _give_up(self, request: Request) -> None:
        assert self.policy is not None
        self.policy.abandon(request)
        self._end(request, "timed out")
        if self._rule.manner == "hasty" and request.attempt < self._rule.attempts_max:
            self._later(request, _HASTY_S)

    def _later(self, request: Request, wait_s: float) -> None:
        sent = self._timeline.now + wait_s
        again = replace(
            request,
            sent=sent,
            deadline=sent + request.deadline - request.sent,
            attempt=request.attempt + 1,
            ended=None,
            outcome="",
        )
        self._timeline.at(sent, lambda: self.send(again))

    def _end(self, request: Request, outcome: str) -> None:
        self._deadlines.pop(request).cancel()
        request.ended = self._timeline.now
        request.outcome = outcome
