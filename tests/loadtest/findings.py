"""Steps as a sweep measures them, from a law and without scatter."""

from __future__ import annotations

from loadtest.fake_law import Law
from loadtest.results import Summary
from loadtest.slo import Slo
from loadtest.step import Counts, Latency, Step
from loadtest.sweep import Findings

LEVELS = (1, 2, 4, 8, 12, 16, 20, 32, 64)
MEASURE_S = 20.0
SIXTEEN = Law(0.5, knee=16)


def step(
    law: Law, level: float, slo: Slo, *, kind: str = "closed", refused: int = 0, limit: str = "",
    gpu: dict[str, float] | None = None,
) -> Step:  # fmt: skip
    in_flight = round(level) if kind == "closed" else 1
    per_s = law.rate(in_flight) if kind == "closed" else level
    p95_s = law.latency_quantile_s(in_flight, 0.95)
    answers = round(per_s * MEASURE_S)
    held = slo.holds(p95_s, refused / (answers + refused))
    counts = Counts(
        due=answers + refused, in_time=answers, late=0,
        refused={"queue_full": refused} if refused else {}, failed={},
        broken=0, unreachable=0, timed_out=0, unsent=0,
    )  # fmt: skip
    latency = Latency(p95_s / 2, p95_s, p95_s * 1.2, (p95_s * 0.9, p95_s * 1.1), 0.3)
    return Step(
        kind, level, MEASURE_S, counts, per_s, (per_s * 0.9, per_s * 1.1), per_s,
        refused / counts.due, (0.0, 0.1), latency, latency, 1.0 if refused else None, held,
        0.001, 0.1, limit, gpu or {},
    )  # fmt: skip


def summary(law: Law, p95_s: float = 2.0, **more: str) -> Summary:
    """Of a sweep whose server keeps to `law`, with the promise that is named."""
    slo = Slo(p95_s)
    steps = [step(law, level, slo, gpu={"temperature_c": 60.0 + level}) for level in LEVELS]
    capacity = law.rate(LEVELS[-1])
    opened = [step(law, capacity * 0.5, slo, kind="poisson")]
    opened.append(step(law, capacity * 0.9, slo, kind="poisson", refused=50))
    return Summary({"url": "http://ocr/ocr", "at": "today", **more}, slo, Findings(steps, opened))
