"""What was found, in sentences, and the chart's values that follow from it."""

from __future__ import annotations

from collections.abc import Iterator

from loadtest.knee import Knee
from loadtest.results import Summary
from loadtest.sweep import Findings


def sentences(summary: Summary) -> Iterator[str]:
    """For people, the most important first."""
    found, slo = summary.findings, summary.slo
    unit = "in flight" if _closed(found) else "requests a second"
    knee = found.knee
    if isinstance(knee, Knee):
        yield (
            f"Knee at {knee.load:.3g} {unit} ({knee.low:.3g} to {knee.high:.3g}), where about "
            f"{knee.per_s:.3g} answers a second are the most."
        )
    elif len({step.level for step in found.steps}) > 1:
        yield f"No knee: {knee.why}."
    edge = found.boundary
    promise = f"p95 within {slo.p95_s:g} s and at most {slo.failed_share:.1%} without an answer"
    if len({step.level for step in found.steps}) == 1:
        yield f"The promise ({promise}) {'held' if edge.failed is None else 'did not hold'}."
    elif edge.passed is not None:
        broke = f"broke at {edge.failed:g}" if edge.failed is not None else "never broke"
        yield f"The promise ({promise}) held up to {edge.passed:g} {unit} and {broke}."
    elif found.steps:
        yield f"The promise ({promise}) held at no level."
    yield from _open_loop(found)
    yield from _limits(found)


def _open_loop(found: Findings) -> Iterator[str]:
    edge = found.open_boundary
    if edge.passed is not None:
        share = edge.passed / found.capacity_per_s
        yield (
            f"With callers who come at random it held at {edge.passed:g} requests a second, "
            f"{share:.0%} of the capacity."
        )
    elif found.open_steps:
        yield "With callers who come at random it held at none of the rates tried."


def _limits(found: Findings) -> Iterator[str]:
    steps = (*found.steps, *found.open_steps)
    limited = [step for step in steps if step.generator_limit]
    if limited:
        worst = max(limited, key=lambda step: step.lag_p95_s)
        yield (
            f"In {len(limited)} of {len(steps)} steps the generator itself may be what was "
            f"measured; the worst, at {worst.level:g}: {worst.generator_limit}."
        )
    degraded = sum(step.counts.degraded for step in steps)
    if degraded:
        yield f"{degraded} answers were degraded: read by the CPU engine or with fewer pixels."


def _closed(found: Findings) -> bool:
    return all(step.kind == "closed" for step in found.steps)


def sequences(found: Findings, pods: int = 1) -> int | None:
    """`--max-num-seqs` of each of `pods`: the knee, or less where the promise broke before it."""
    knee, edge = found.knee, found.boundary
    if not _closed(found) or edge.passed is None:
        return None
    if not isinstance(knee, Knee) and edge.failed is None:
        return None  # more was never tried
    most = min(round(knee.load), edge.passed) if isinstance(knee, Knee) else edge.passed
    return max(1, int(most / pods))


def values(summary: Summary, profile: str, pods: int = 1) -> str:
    """A values file for the chart, with what each figure rests on; comments alone where nothing
    follows.
    """
    found = summary.findings
    lines = [f"# {line}" for line in (*_origin(summary), *sentences(summary))]
    most = sequences(found, pods)
    if most is None:
        return "\n".join(
            [*lines, "# No setting follows: sweep in closed loop, up to where the promise breaks."]
        )
    lines += [
        "profiles:",
        f"  {profile}:",
        "    # Also as many as the service lets to the engine at once (HYOCR_VLLM_CONCURRENCY).",
        f"    maxNumSeqs: {most}",
    ]
    edge = found.open_boundary
    if edge.passed is not None:
        percent = min(100, max(10, round(100 * edge.passed / found.capacity_per_s)))
        lines += [
            "autoscaling:",
            "  # The highest part of the capacity tried in open loop at which the promise held.",
            f"  targetPercent: {percent}",
        ]
    return "\n".join(lines) + "\n"


def _origin(summary: Summary) -> Iterator[str]:
    about = summary.about
    yield ", ".join(about[name] for name in ("at", "url", "gpu", "mix") if about.get(name))
