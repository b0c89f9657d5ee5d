"""The curve: answers, latency, what went wrong and the card, over the load. Needs matplotlib."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from loadtest.knee import Knee
from loadtest.results import Summary
from loadtest.step import Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INCHES = (7.2, 2.4)
_DPI = 110


def draw(summaries: Sequence[Summary]) -> Figure:
    """Sweeps over each other. Raises ImportError where there is no matplotlib."""
    from matplotlib.figure import Figure

    with_gpu = any(step.gpu for summary in summaries for step in summary.findings.steps)
    panels = [_throughput, _latency, _failures, *([_gpu] if with_gpu else [])]
    figure = Figure((_INCHES[0], _INCHES[1] * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for panel, axis in zip(panels, axes, strict=True):
        for number, summary in enumerate(summaries):
            panel(axis, summary, f"C{number}")
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize="small")
    axes[-1].set_xscale("log", base=2)
    axes[-1].xaxis.set_major_formatter("{x:g}")
    closed = all(step.kind == "closed" for s in summaries for step in s.findings.steps)
    axes[-1].set_xlabel("callers in flight" if closed else "requests offered / s")
    return figure


def png(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=_DPI, metadata={"Software": None})
    return out.getvalue()


def svg(figure: Figure) -> str:
    """An <svg> element, to stand within HTML."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _levels(summary: Summary) -> list[float]:
    return sorted({step.level for step in summary.findings.steps})


def _mean(summary: Summary, value: Callable[[Step], float | None]) -> list[float]:
    """Of each level's repeats; NaN where none has the value."""
    means = []
    for level in _levels(summary):
        steps = [step for step in summary.findings.steps if step.level == level]
        known = [found for step in steps if (found := value(step)) is not None]
        means.append(sum(known) / len(known) if known else float("nan"))
    return means


def _throughput(axis: Axes, summary: Summary, colour: str) -> None:
    levels = _levels(summary)
    answered = _mean(summary, lambda s: s.answered_per_s)
    low = _mean(summary, lambda s: s.answered_interval[0])
    high = _mean(summary, lambda s: s.answered_interval[1])
    axis.plot(levels, answered, f"{colour}o-", ms=3, lw=1, label=f"answers {summary.name}".strip())
    axis.fill_between(levels, low, high, color=colour, alpha=0.15, lw=0)
    axis.plot(levels, _mean(summary, lambda s: s.goodput_per_s), f"{colour}:", label="in time")
    knee = summary.findings.knee
    if isinstance(knee, Knee):
        axis.axvspan(knee.low, knee.high, color=colour, alpha=0.12, lw=0)
        axis.axvline(knee.load, color=colour, ls="--", lw=1, label=f"knee {knee.load:.3g}")
    axis.set_ylabel("answers / s")
    axis.set_ylim(bottom=0)


def _latency(axis: Axes, summary: Summary, colour: str) -> None:
    from matplotlib.ticker import LogLocator

    levels = _levels(summary)
    for name, style in (("p50_s", ":"), ("p95_s", "-"), ("p99_s", "--")):
        values = _mean(summary, lambda s, n=name: s.latency and getattr(s.latency, n))  # type: ignore[misc]
        axis.plot(levels, values, colour + style, lw=1, label=name.removesuffix("_s"))
    axis.axhline(summary.slo.p95_s, color="grey", lw=0.8)
    edge = summary.findings.boundary
    if edge.passed is not None:
        axis.axvline(edge.passed, color="grey", ls="--", lw=1, label=f"held to {edge.passed:g}")
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("")
    axis.set_ylabel("latency, s")


def _failures(axis: Axes, summary: Summary, colour: str) -> None:
    kinds: dict[str, Callable[[Step], float]] = {
        "refused": lambda s: sum(s.counts.refused.values()),
        "timed out": lambda s: s.counts.timed_out,
        "other": lambda s: (
            sum(s.counts.failed.values()) + s.counts.broken + s.counts.unreachable + s.counts.unsent
        ),
    }
    for (name, count), style in zip(kinds.items(), ("-", "--", ":"), strict=True):
        shares = _mean(summary, lambda s, c=count: 100 * c(s) / max(1, s.counts.due))  # type: ignore[misc]
        axis.plot(_levels(summary), shares, colour + style, lw=1, label=name)
    axis.set_ylabel("of requests, %")
    axis.set_ylim(-2, 102)


def _gpu(axis: Axes, summary: Summary, colour: str) -> None:
    shown = (
        ("temperature_c", 1.0, "°C", "-"), ("memory_used_gb", 1.0, "memory, GB", "--"),
        ("utilization", 100.0, "busy, %", ":"),
    )  # fmt: skip
    for name, factor, label, style in shown:
        values = _mean(summary, lambda s, n=name: s.gpu.get(n))  # type: ignore[misc]
        if not all(math.isnan(value) for value in values):
            scaled = [value * factor for value in values]
            axis.plot(_levels(summary), scaled, colour + style, lw=1, label=label)
    axis.set_ylabel("GPU")
