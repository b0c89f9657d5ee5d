"""The questions asked of the simulation, as scenarios."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random

from benchmarks.simulator.calibration import calibrated_speed
from benchmarks.simulator.clients import Retries, RetryRule
from benchmarks.simulator.engine import Engine
from benchmarks.simulator.events import Timeline
from benchmarks.simulator.parameters import RTX_4090_D, Setup
from benchmarks.simulator.run import (
    Outcome,
    PolicyName,
    Scenario,
    median_s,
    percentile,
    run,
)
from benchmarks.simulator.workload import Source, burst, diurnal, steady
from hunyuan_ocr.traffic.classes import DEFAULT_POLICIES, Priority

_CLOSED_LOOP_S = 120.0
TENANTS = tuple(f"tenant-{n}" for n in range(20))
MODEST = tuple(f"modest-{n}" for n in range(4))
GREEDY = "greedy"


@cache
def capacity(setup: Setup = RTX_4090_D) -> float:
    """Pages a second with every slot always taken: load 1."""
    timeline = Timeline()
    simulated = Engine(timeline, setup.engine)
    pages = source(Priority.BATCH, 1e3).requests(Random(1), 1e9)
    done: list[float] = []

    def again() -> None:
        page = next(pages)
        simulated.submit(page.work, page.kind.megapixels, ended)

    def ended() -> None:
        done.append(timeline.now)
        again()

    for _ in range(setup.sidecar.limit_slots):
        again()
    timeline.run(_CLOSED_LOOP_S)
    return len(done) / _CLOSED_LOOP_S


def source(priority: Priority, rate: float, tenants: tuple[str, ...] = TENANTS) -> Source:
    timeout_s = DEFAULT_POLICIES[priority].timeout_s
    return Source(priority, timeout_s, steady(rate), rate, tenants)


def overload(
    policy: PolicyName,
    load: float,
    *,
    setup: Setup = RTX_4090_D,
    seed: int = 1,
    measured_s: float = 120.0,
) -> Outcome:
    """Interactive pages alone, at `load` times what the card carries."""
    rate = load * capacity(setup)
    sources = [source(Priority.INTERACTIVE, rate)]
    return run(Scenario(sources, policy, setup, seed=seed, measured_s=measured_s))


@dataclass(frozen=True, slots=True)
class Quickness:
    """Interactive response at half load, alone and under a flood of batch pages."""

    alone_p95_s: float
    flooded_p95_s: float
    median_page_s: float
    batch_share: float  # of all pages answered under the flood

    @property
    def extra_pages(self) -> float:
        return (self.flooded_p95_s - self.alone_p95_s) / self.median_page_s


def quickness(
    policy: PolicyName,
    *,
    setup: Setup = RTX_4090_D,
    seed: int = 1,
    measured_s: float = 300.0,
) -> Quickness:
    full = capacity(setup)
    interactive = source(Priority.INTERACTIVE, 0.5 * full)
    flood = source(Priority.BATCH, 3 * full, ("flood",))
    alone, flooded = (
        run(Scenario(sources, policy, setup, seed=seed, measured_s=measured_s))
        for sources in ([interactive], [interactive, flood])
    )
    latencies_s = alone.latencies_s(Priority.INTERACTIVE)
    batch = sum(r.priority is Priority.BATCH for r in flooded.answered)
    return Quickness(
        percentile(latencies_s, 0.95),
        percentile(flooded.latencies_s(Priority.INTERACTIVE), 0.95),
        median_s(latencies_s),
        batch / max(1, len(flooded.answered)),
    )


@dataclass(frozen=True, slots=True)
class Shares:
    """What each tenant got of the engine's seconds; one asks for ten times what the card carries,
    the others each for twice their share."""

    by_tenant: dict[str, float]

    @property
    def greedy_excess(self) -> float:
        fair = sum(self.by_tenant.values()) / (len(MODEST) + 1)
        return self.by_tenant.get(GREEDY, 0.0) / fair - 1


def shares(
    policy: PolicyName,
    *,
    setup: Setup = RTX_4090_D,
    greedy_load: float = 10.0,
    seed: int = 1,
) -> Shares:
    full = capacity(setup)
    sources = [
        source(Priority.STANDARD, 2 * full * len(MODEST) / (len(MODEST) + 1), MODEST),
        source(Priority.STANDARD, greedy_load * full, (GREEDY,)),
    ]
    outcome = run(Scenario(sources, policy, setup, seed=seed, measured_s=120.0))
    speed = calibrated_speed(setup.engine)
    served = dict.fromkeys((*MODEST, GREEDY), 0.0)
    for request in outcome.answered:
        served[request.tenant] += speed.alone_s(request.work)
    return Shares(served)


@dataclass(frozen=True, slots=True)
class Storm:
    """After two seconds at ten times the load: how long clients went on coming back, how often
    the most patient of them asked, and attempts for each answer."""

    last_retry_after_s: float
    most_attempts: int
    attempts_per_answer: float


_STORM_BEGIN_S, _STORM_END_S = 40.0, 42.0


def storm(policy: PolicyName, manner: Retries, *, seed: int = 1) -> Storm:
    outcome = _storm(policy, manner, seed)
    late = [r.sent - _STORM_END_S for r in outcome.attempts if r.attempt > 1]
    return Storm(
        max(late, default=0.0),
        max(r.attempt for r in outcome.attempts),
        len(outcome.attempts) / max(1, len(outcome.answered)),
    )


def storm_attempts(policy: PolicyName, manner: Retries, *, seed: int = 1) -> list[int]:
    """Attempts in each of the first sixty seconds since the storm began."""
    attempts = [0] * 60
    for request in _storm(policy, manner, seed).attempts:
        second = int(request.sent - _STORM_BEGIN_S)
        if second < len(attempts):
            attempts[second] += 1
    return attempts


def _storm(policy: PolicyName, manner: Retries, seed: int) -> Outcome:
    """Light load, and for two seconds ten times what the card carries."""
    full = capacity()
    rate = burst(0.3 * full, 10 * full, _STORM_BEGIN_S, _STORM_END_S)
    timeout_s = DEFAULT_POLICIES[Priority.INTERACTIVE].timeout_s
    sources = [Source(Priority.INTERACTIVE, timeout_s, rate, 10 * full, TENANTS)]
    return run(
        Scenario(
            sources,
            policy,
            retries=RetryRule(manner),
            warm_up_s=_STORM_BEGIN_S,
            measured_s=160.0,
            seed=seed,
        )
    )


_DAY_S = 3600.0


def day(policy: PolicyName = "ours") -> tuple[list[float], list[float]]:
    """Pages a second offered and answered in time, in each minute of a day made an hour long
    whose busiest time is twice what the card carries."""
    full = capacity()
    timeout_s = DEFAULT_POLICIES[Priority.STANDARD].timeout_s
    rate = diurnal(1.05 * full, 0.9, _DAY_S)
    sources = [Source(Priority.STANDARD, timeout_s, rate, 2 * full, TENANTS)]
    outcome = run(Scenario(sources, policy, warm_up_s=0.0, measured_s=_DAY_S))
    offered, answered = [0.0] * 60, [0.0] * 60
    for request in outcome.attempts:
        minute = int(request.sent / 60)
        offered[minute] += 1 / 60
        answered[minute] += (request.outcome == "answered") / 60
    return offered, answered
