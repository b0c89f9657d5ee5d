"""Recorded series: what budgets and burn rates are made of.

A day's share of bad requests is that of its recorded five-minute rates, so that a long window costs
no more than its samples, and a pod that is gone still counts.
"""

from __future__ import annotations

from typing import Any

from dashboards.promql import Scope
from dashboards.slo import (
    AVAILABILITY,
    LATENCY,
    OBJECTIVES,
    Objective,
    bad_requests,
    counted_requests,
    interactive_answered,
    interactive_within,
)

Rule = dict[str, Any]

JOB = ("namespace", "job")
# The windows of burn alerts; 30 days are those of the budget.
WINDOWS = ("30m", "1h", "2h", "6h", "1d", "3d", "30d")


def recording_rules(matchers: tuple[str, ...]) -> list[Rule]:
    """For the service's series that `matchers` select, by namespace and job."""
    scope = Scope(matchers, "5m")
    counted, answered = counted_requests(scope, JOB), interactive_answered(scope, JOB)
    rates = {
        AVAILABILITY.counted: counted,
        # Present wherever the whole is, or both would be averages over different times.
        AVAILABILITY.bad: f"{bad_requests(scope, JOB)} or 0 * ({counted})",
        LATENCY.counted: answered,
        LATENCY.bad: f"{answered} - ({interactive_within(scope, JOB)} or 0 * {answered})",
    }
    recorded = Scope(matchers, "")
    return [
        *({"record": f"{name}:rate5m", "expr": query} for name, query in rates.items()),
        *(rule for objective in OBJECTIVES for rule in _ratios(objective, recorded)),
    ]


def _ratios(objective: Objective, recorded: Scope) -> list[Rule]:
    bad = recorded.series(f"{objective.bad}:rate5m")
    counted = recorded.series(f"{objective.counted}:rate5m")
    shares = {"5m": f"{bad} / ({counted} > 0)"} | {
        w: f"avg_over_time({bad}[{w}]) / (avg_over_time({counted}[{w}]) > 0)" for w in WINDOWS
    }
    return [{"record": objective.ratio(w), "expr": share} for w, share in shares.items()]
