"""What was measured, as files: summary.json, from which all else can be drawn, and steps.csv."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from loadtest.slo import Slo
from loadtest.step import Step
from loadtest.sweep import Findings

COLUMNS = (
    "kind", "level", "answered_per_s", "answered_low", "answered_high", "goodput_per_s",
    "p50_s", "p95_s", "p95_low", "p95_high", "p99_s", "first_p50_s", "first_p95_s",
    "due", "in_time", "late", "refused", "failed", "broken", "unreachable", "timed_out", "unsent",
    "degraded", "failed_share", "held", "retry_after_s", "lag_p95_s", "cpu_share",
    "generator_limit", "temperature_c", "memory_used_gb", "utilization", "power_w",
)  # fmt: skip


class ResultsUnusable(Exception):
    """A file is no summary of this kit; the message is for people."""


@dataclass(frozen=True, slots=True)
class Summary:
    """`about`: what was measured, how and on what, by name, for people."""

    about: dict[str, str]
    slo: Slo
    findings: Findings

    @property
    def name(self) -> str:
        return self.about.get("name", "")


_SUMMARY = TypeAdapter(Summary)
_ANY = TypeAdapter[Any](Any)


def to_json(summary: Summary) -> str:
    """One line. `result` is there for readers; `from_json` finds it anew."""
    found = summary.findings
    result = {
        "knee": found.knee,
        "boundary": found.boundary,
        "open_boundary": found.open_boundary,
        "capacity_per_s": found.capacity_per_s,
    }
    content = {**_SUMMARY.dump_python(summary), "result": result}
    return _ANY.dump_json(content).decode()


def from_json(text: str | bytes) -> Summary:
    """Raises ResultsUnusable."""
    try:
        return _SUMMARY.validate_json(text)
    except ValidationError as error:
        raise ResultsUnusable(f"no summary of a load test: {error.errors()[0]['msg']}") from None


def to_csv(findings: Findings) -> str:
    """A line for each step, those in open loop last."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for step in (*findings.steps, *findings.open_steps):
        writer.writerow(row(step))
    return out.getvalue()


def row(step: Step) -> dict[str, Any]:
    """A step by column; what is unknown is missing."""
    counts, latency, first = step.counts, step.latency, step.first
    found: dict[str, Any] = {name: getattr(step, name) for name in COLUMNS if hasattr(step, name)}
    found |= {name: getattr(counts, name) for name in COLUMNS if hasattr(counts, name)}
    found |= {"refused": sum(counts.refused.values()), "failed": sum(counts.failed.values())}
    found["answered_low"], found["answered_high"] = step.answered_interval
    if latency:
        found |= {"p50_s": latency.p50_s, "p95_s": latency.p95_s, "p99_s": latency.p99_s}
        found["p95_low"], found["p95_high"] = latency.p95_interval
    if first:
        found |= {"first_p50_s": first.p50_s, "first_p95_s": first.p95_s}
    found |= step.gpu
    return {name: _short(value) for name, value in found.items() if value is not None}


def _short(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value
