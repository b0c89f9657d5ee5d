"""What is promised to callers, and up to which load it held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slo:
    """95 % of answers within `p95_s`, and at most `failed_share` of requests without one."""

    p95_s: float
    failed_share: float = 0.01

    def holds(self, p95_s: float | None, failed_share: float) -> bool:
        """`p95_s` None: nothing was answered."""
        return p95_s is not None and p95_s <= self.p95_s and failed_share <= self.failed_share


@dataclass(frozen=True, slots=True)
class Boundary:
    """The highest load below all that failed, and the lowest that failed. None: there was none."""

    passed: float | None
    failed: float | None


def boundary(steps: Iterable[tuple[float, bool]]) -> Boundary:
    """Of (load, did it hold), a load passing where all its repeats do."""
    held: dict[float, bool] = {}
    for load, ok in steps:
        held[load] = held.get(load, True) and ok
    return boundary_of(held)


def boundary_of(held: Mapping[float, bool]) -> Boundary:
    failed = min((load for load, ok in held.items() if not ok), default=None)
    below = [load for load, ok in held.items() if ok and (failed is None or load < failed)]
    return Boundary(max(below, default=None), failed)
