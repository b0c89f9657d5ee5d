"""Draw the plots and the sensitivity table of docs/simulation.md.

python -m benchmarks.simulator
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.simulator.clients import Retries
from benchmarks.simulator.parameters import RTX_4090_D, Setup, SidecarParameters
from benchmarks.simulator.run import POLICIES, Outcome, PolicyName, jain, percentile
from benchmarks.simulator.scenarios import (
    capacity,
    day,
    overload,
    quickness,
    shares,
    storm_attempts,
)
from hunyuan_ocr.traffic.classes import Priority

_DOCS = Path(__file__).parents[2] / "docs" / "simulation"
_LOADS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
_LABELS: dict[PolicyName, str] = {
    "ours": "this service",
    "semaphore": "semaphore of 16, with timeout",
    "naked": "naked engine",
    "engine_limits": "engine's queue limit (64)",
}
_COMPARED: tuple[PolicyName, ...] = ("ours", "semaphore", "naked")
_SIZE = (6.4, 3.6)
_VARIED = (
    "render_megapixel_s",
    "step_s",
    "step_sequence_s",
    "vision_tflop_s",
    "prefill_token_s",
    "kv_tokens",
)


def main() -> None:
    _DOCS.mkdir(parents=True, exist_ok=True)
    outcomes = {(p, load): overload(p, load) for p in POLICIES for load in _LOADS}
    _over_load("goodput", "answers in time / s", outcomes, lambda o: o.goodput)
    _over_load("p95", "p95 of answers, s", outcomes, _p95_s)
    _fairness()
    _storm()
    _day()
    for row in _sensitivity():
        print(row, flush=True)


def _over_load(
    name: str,
    label: str,
    outcomes: dict[tuple[PolicyName, float], Outcome],
    value: Callable[[Outcome], float],
) -> None:
    figure, axes = plt.subplots(figsize=_SIZE)
    for policy, legend in _LABELS.items():
        axes.plot(_LOADS, [value(outcomes[policy, load]) for load in _LOADS], "o-", label=legend)
    _finish(figure, axes, name, "offered load / capacity", label, log_x=True)


def _p95_s(outcome: Outcome) -> float:
    latencies_s = outcome.latencies_s(Priority.INTERACTIVE)
    return percentile(latencies_s, 0.95) if latencies_s else float("nan")


def _fairness() -> None:
    loads = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
    figure, axes = plt.subplots(figsize=_SIZE)
    for policy, legend in _LABELS.items():
        parts = [list(shares(policy, greedy_load=load).by_tenant.values()) for load in loads]
        axes.plot(loads, [jain(part) for part in parts], "o-", label=legend)
    axes.set_ylim(0, 1.05)
    label = "Jain's index over five tenants"
    _finish(figure, axes, "fairness", "load of the greedy tenant / capacity", label, log_x=True)


def _storm() -> None:
    figure, axes = plt.subplots(figsize=_SIZE)
    manners: dict[Retries, str] = {
        "honour": "clients honour Retry-After",
        "hasty": "clients come back every second",
    }
    for manner, legend in manners.items():
        attempts = storm_attempts("ours", manner, seed=1)
        axes.step(range(len(attempts)), attempts, label=legend)
    axes.set_yscale("symlog")
    _finish(figure, axes, "storm", "seconds since a burst of two seconds began", "attempts / s")


def _day() -> None:
    figure, axes = plt.subplots(figsize=_SIZE)
    offered, answered = day()
    axes.plot(offered, label="offered")
    axes.plot(answered, label="answered in time")
    _finish(figure, axes, "day", "minutes of a day made one hour long", "pages / s")


def _finish(
    figure: Figure,
    axes: Axes,
    name: str,
    x_label: str,
    y_label: str,
    *,
    log_x: bool = False,
) -> None:
    if log_x:
        axes.set_xscale("log")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(_DOCS / f"{name}.png", dpi=110, metadata={"Software": None})
    plt.close(figure)


def _sensitivity() -> Iterator[str]:
    """Rows of a table: how the answers change with one parameter halved and doubled."""
    yield "| varied | capacity | ours at 5x | semaphore at 5x | naked at 5x | extra pages |"
    yield "|---|---|---|---|---|---|"
    yield _row("nothing", RTX_4090_D)
    for name in _VARIED:
        value = getattr(RTX_4090_D.engine, name)
        for factor in (0.5, 2.0):
            engine = replace(RTX_4090_D.engine, **{name: type(value)(value * factor)})
            yield _row(f"`{name}` x {factor:g}", Setup(engine=engine))
    for slots in (8, 32):
        sidecar = SidecarParameters(
            limit_slots=slots, floor_slots=slots // 2, reserved_slots=slots * 7 // 16
        )
        yield _row(f"{slots} slots", Setup(sidecar=sidecar))


def _row(name: str, setup: Setup) -> str:
    full = capacity(setup)
    parts = []
    for policy in _COMPARED:
        outcome = overload(policy, 5.0, setup=setup, measured_s=60.0)
        parts.append(f"{outcome.goodput / full:.2f}")
    extra = quickness("ours", setup=setup, measured_s=120.0).extra_pages
    return f"| {name} | {full:.1f} | {' | '.join(parts)} | {extra:.2f} |"


if __name__ == "__main__":
    main()
