"""Step after step of load, until knee and promise are known; then open loop around the knee."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from loadtest.knee import Knee, NoKnee, Point, find_knee
from loadtest.schedule import Arrivals, Closed, Load, Open
from loadtest.search import Measured, Range, next_level
from loadtest.slo import Boundary, boundary
from loadtest.step import Step

# Measures one step, by a load and a number that is new for each.
Measure = Callable[[Load, int], Awaitable[Step]]


@dataclass(frozen=True, slots=True)
class Plan:
    """`arrivals` None: closed loop over callers in flight, else open loop over requests a second.
    `open_shares`: parts of the capacity at which a closed sweep ends in open loop.
    """

    levels: Range
    repeats: int = 3
    arrivals: Arrivals | None = None
    open_shares: Sequence[float] = (0.5, 0.7, 0.9, 1.1)

    def load(self, level: float) -> Load:
        return Closed(round(level)) if self.arrivals is None else Open(level, self.arrivals)


@dataclass(slots=True)
class Findings:
    """What a sweep has found so far. `open_steps` are those around the knee."""

    steps: list[Step] = field(default_factory=list)
    open_steps: list[Step] = field(default_factory=list)

    @property
    def knee(self) -> Knee | NoKnee:
        return find_knee([_point(step) for step in self.steps])

    @property
    def boundary(self) -> Boundary:
        return boundary((step.level, step.held) for step in self.steps)

    @property
    def open_boundary(self) -> Boundary:
        return boundary((step.level, step.held) for step in self.open_steps)

    @property
    def capacity_per_s(self) -> float:
        """Answers a second at the knee, or the most that were seen."""
        knee = self.knee
        if isinstance(knee, Knee):
            return knee.per_s
        return max((step.answered_per_s for step in self.steps), default=0.0)


async def sweep(measure: Measure, plan: Plan, found: Findings) -> None:
    """Fill `found` as steps end, so that one that is interrupted has what it had measured."""
    while (level := next_level(plan.levels, [_measured(s) for s in found.steps])) is not None:
        for _ in range(plan.repeats):
            found.steps.append(await measure(plan.load(level), len(found.steps)))
    capacity = found.capacity_per_s
    if plan.arrivals is not None or not capacity:
        return
    for share in plan.open_shares:
        load = Open(float(f"{share * capacity:.3g}"))
        found.open_steps.append(await measure(load, len(found.steps) + len(found.open_steps)))


def _point(step: Step) -> Point:
    answers = round(step.answered_per_s * step.measure_s)
    # A caller in closed loop asks as often as it is answered; others come by their own schedule.
    closed = step.latency if step.kind == "closed" else None
    scatter = min(1.0, closed.variation) if closed else 1.0
    return Point(step.level, step.answered_per_s, answers, scatter)


def _measured(step: Step) -> Measured:
    return Measured(_point(step), step.held)
