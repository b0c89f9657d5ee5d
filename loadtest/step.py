"""A step's requests as figures, each with how sure it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any

from loadtest.generator import Record
from loadtest.intervals import (
    Interval,
    quantile,
    quantile_interval,
    rate_interval,
    share_interval,
)
from loadtest.outcomes import Outcome, Sample
from loadtest.schedule import Closed, Load, Replay
from loadtest.slo import Slo

# The generator is part of what it measures when it is later than this part of the latency.
_LATE_SHARE = 0.05
_LATE_MIN_S = 0.002
_CPU_MAX = 0.9


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests that were due in the window, by what came of them; they add up to `due`. Refusals
    and failures are by the server's code.
    """

    due: int
    in_time: int
    late: int
    refused: dict[str, int]
    failed: dict[str, int]
    broken: int
    unreachable: int
    timed_out: int
    unsent: int
    degraded: int = 0

    @property
    def answered(self) -> int:
        return self.in_time + self.late


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds since the intended send; `p95_interval` is the 95 % one, `variation` the standard
    deviation as a part of the mean.
    """

    p50_s: float
    p95_s: float
    p99_s: float
    p95_interval: Interval
    variation: float


@dataclass(frozen=True, slots=True)
class Step:
    """One step of load. `level` is callers in flight (`closed`) or requests a second; rates are
    of answers that ended in the window, `goodput` of those in time. `latency` and `first` (to the
    first of the text) are of answered requests, None without any.
    """

    kind: str
    level: float
    measure_s: float
    counts: Counts
    answered_per_s: float
    answered_interval: Interval
    goodput_per_s: float
    failed_share: float
    failed_interval: Interval
    latency: Latency | None
    first: Latency | None
    retry_after_s: float | None
    held: bool
    lag_p95_s: float
    cpu_share: float
    generator_limit: str
    gpu: dict[str, float] = field(default_factory=dict)


def summarise(load: Load, record: Record, slo: Slo, gpu: dict[str, float] | None = None) -> Step:
    """The figures of a step; the warm-up and what was due behind the window are left out."""
    begin, end = record.timing.warm_up_s, record.timing.end_s
    due = [s for s in record.samples if begin <= s.due < end]
    answered = [s for s in due if s.answered]
    ended = [s for s in record.samples if s.answered and begin <= s.ended < end]
    counts = _count(due, slo)
    latency = _latency([s.latency_s for s in answered])
    missing = counts.due - counts.answered
    failed_share = missing / counts.due if counts.due else 1.0
    lag_p95_s = max(_p95([s.lag_s for s in due]), _p95(record.ticks_late_s))
    return Step(
        kind="closed" if isinstance(load, Closed) else _arrivals(load),
        level=load.level,
        measure_s=record.timing.measure_s,
        counts=counts,
        answered_per_s=len(ended) / record.timing.measure_s,
        answered_interval=rate_interval([s.ended for s in ended], begin, end),
        goodput_per_s=sum(s.latency_s <= slo.p95_s for s in ended) / record.timing.measure_s,
        failed_share=failed_share,
        failed_interval=share_interval(missing, counts.due),
        latency=latency,
        first=_latency([s.reply.first_at - s.due for s in answered if s.reply.first_at]),
        retry_after_s=_median_retry_after(due),
        held=slo.holds(latency.p95_s if latency else None, failed_share),
        lag_p95_s=lag_p95_s,
        cpu_share=record.cpu_share,
        generator_limit=_generator_limit(lag_p95_s, record.cpu_share, counts, latency),
        gpu=gpu or {},
    )


def _arrivals(load: Any) -> str:
    return "replay" if isinstance(load, Replay) else str(load.arrivals.value)


def _count(due: Sequence[Sample], slo: Slo) -> Counts:
    by = Counter(s.reply.outcome for s in due)
    in_time = sum(s.answered and s.latency_s <= slo.p95_s for s in due)

    def codes(outcome: Outcome) -> dict[str, int]:
        found = Counter(s.reply.code for s in due if s.reply.outcome is outcome)
        return dict(sorted(found.items()))

    return Counts(
        due=len(due),
        in_time=in_time,
        late=by[Outcome.ANSWERED] - in_time,
        refused=codes(Outcome.REFUSED),
        failed=codes(Outcome.FAILED),
        broken=by[Outcome.BROKEN],
        unreachable=by[Outcome.UNREACHABLE],
        timed_out=by[Outcome.TIMED_OUT],
        unsent=by[Outcome.UNSENT],
        degraded=sum(s.reply.degraded for s in due),
    )


def _latency(seconds: Sequence[float]) -> Latency | None:
    if not seconds:
        return None
    ordered = sorted(seconds)
    return Latency(
        p50_s=quantile(ordered, 0.5),
        p95_s=quantile(ordered, 0.95),
        p99_s=quantile(ordered, 0.99),
        p95_interval=quantile_interval(ordered, 0.95),
        variation=pstdev(ordered) / max(fmean(ordered), 1e-9),
    )


def _p95(seconds: Sequence[float]) -> float:
    return quantile(sorted(seconds), 0.95) if seconds else 0.0


def _median_retry_after(due: Sequence[Sample]) -> float | None:
    told = sorted(s.reply.retry_after_s for s in due if s.reply.retry_after_s is not None)
    return quantile(told, 0.5) if told else None


def _generator_limit(
    lag_p95_s: float, cpu_share: float, counts: Counts, latency: Latency | None
) -> str:
    """Why the generator and not the server may be what was measured; empty where it was not."""
    if not counts.due:
        return "nothing was due in the seconds that count: measure longer"
    if counts.unsent:
        return f"{counts.unsent} requests were never sent: too many were in flight already"
    if lag_p95_s > max(_LATE_MIN_S, _LATE_SHARE * (latency.p50_s if latency else 0.0)):
        return f"requests were sent late (p95 {lag_p95_s * 1e3:.0f} ms)"
    if cpu_share > _CPU_MAX:
        return f"the generator used {cpu_share:.0%} of its core"
    return ""
