"""One simulated run: sources, clients, a policy, an engine; and what can be said of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from statistics import median
from typing import Literal

from benchmarks.simulator.clients import NO_RETRIES, Clients, RetryRule
from benchmarks.simulator.engine import Engine
from benchmarks.simulator.events import Timeline
from benchmarks.simulator.parameters import RTX_4090_D, EngineParameters, Setup
from benchmarks.simulator.policies import Naked, Policy, Semaphore, Service
from benchmarks.simulator.workload import Request, Source
from hunyuan_ocr.traffic.classes import Priority

PolicyName = Literal["ours", "semaphore", "naked", "engine_limits"]
POLICIES: tuple[PolicyName, ...] = ("ours", "semaphore", "naked", "engine_limits")
# The engine's own limit, as an operator would set it: four times what runs at once in comfort.
_MAX_QUEUED = 64


@dataclass(frozen=True, slots=True)
class Scenario:
    """`warm_up_s` is run before, and left out of, the `measured_s` that count. After half of it
    the engine becomes `slower_later` times as slow as the one the service was calibrated on."""

    sources: Sequence[Source]
    policy: PolicyName = "ours"
    setup: Setup = RTX_4090_D
    retries: RetryRule = NO_RETRIES
    warm_up_s: float = 40.0
    measured_s: float = 60.0
    slower_later: float = 1.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """Attempts sent within the measured time, and the engine's count of preemptions."""

    attempts: Sequence[Request]
    answered: Sequence[Request]  # by the time of the answer
    measured_s: float
    preemptions: int

    @property
    def goodput(self) -> float:
        """Answers within their deadline a second."""
        return len(self.answered) / self.measured_s

    def latencies_s(self, priority: Priority) -> list[float]:
        """From sending to answer, sorted."""
        ends = [r for r in self.answered if r.priority is priority and r.ended is not None]
        return sorted(r.ended - r.sent for r in ends if r.ended is not None)

    def refusal_s(self) -> list[float]:
        refused = [r for r in self.attempts if r.outcome == "refused" and r.ended is not None]
        return sorted(r.ended - r.sent for r in refused if r.ended is not None)

    def served_by_tenant(self) -> dict[str, float]:
        """Tokens read and written for each tenant."""
        served: dict[str, float] = defaultdict(float)
        for request in self.answered:
            served[request.tenant] += request.work.tokens
        return dict(served)


def run(scenario: Scenario) -> Outcome:
    rng = Random(scenario.seed)
    timeline = Timeline()
    engine = Engine(timeline, _engine_parameters(scenario))
    clients = Clients(timeline, scenario.retries, rng)
    clients.policy = _policy(scenario, timeline, engine, clients, rng)
    timeline.at(scenario.warm_up_s / 2, partial(engine.slow_down, scenario.slower_later))
    end = scenario.warm_up_s + scenario.measured_s
    for source in scenario.sources:
        _feed(timeline, clients, source, Random(rng.random()), end)
    timeline.run(end)
    begin = scenario.warm_up_s
    answered = [r for r in clients.record if r.outcome == "answered"]
    return Outcome(
        attempts=[r for r in clients.record if r.sent >= begin],
        answered=[r for r in answered if r.ended is not None and r.ended >= begin],
        measured_s=scenario.measured_s,
        preemptions=engine.preemptions,
    )


def percentile(values: Sequence[float], part: float) -> float:
    """Of sorted values; infinite where there are none."""
    return values[min(len(values) - 1, int(part * len(values)))] if values else float("inf")


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index: 1 is equal parts, 1/n all for one."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def median_s(values: Sequence[float]) -> float:
    return median(values) if values else float("inf")


def _engine_parameters(scenario: Scenario) -> EngineParameters:
    if scenario.policy == "engine_limits":
        return replace(scenario.setup.engine, max_queued=_MAX_QUEUED)
    return scenario.setup.engine


def _policy(
    scenario: Scenario, timeline: Timeline, engine: Engine, clients: Clients, rng: Random
) -> Policy:
    if scenario.policy == "ours":
        return Service(
            timeline,
            engine,
            clients.answered,
            clients.refused,
            parameters=scenario.setup.sidecar,
            rng=rng,
        )
    kind = Semaphore if scenario.policy == "semaphore" else Naked
    return kind(engine, clients.answered, clients.refused)


def _feed(timeline: Timeline, clients: Clients, source: Source, rng: Random, end: float) -> None:
    """Only the next request of a source stands in the timeline."""
    requests = source.requests(rng, end)

    def next_one() -> None:
        request = next(requests, None)
        if request is not None:
            timeline.at(request.sent, lambda: send(request))

    def send(request: Request) -> None:
        next_one()
        clients.send(request)

    next_one()
