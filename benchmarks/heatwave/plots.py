"""Draw the plots and the sensitivity table of docs/heatwave.md.

python -m benchmarks.heatwave.plots
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt

from benchmarks.heatwave.card import CardParameters
from benchmarks.heatwave.run import Run, run
from benchmarks.heatwave.service import Load
from benchmarks.heatwave.waves import DRIFT, MILD, SEVERE, SEVEREST, Wave
from hunyuan_ocr.traffic.breaker_states import State

_DOCS = Path(__file__).parents[2] / "docs" / "heatwave"
_SMOOTH_S = 20
_WAVES = (MILD, SEVERE, SEVEREST)
_WORST = ("opens", "a minute", "recovery s", "above threshold s", "without")
_VARIED = (
    "awake_w",
    "dynamic_w",
    "die_k_per_w",
    "sink_k_per_w",
    "sink_j_per_k",
    "chassis_flow",
    "regulation_per_k",
    "cut_clock",
)
_VARIED_LOAD = ("clock_bound", "offered")


def main() -> None:
    _DOCS.mkdir(parents=True, exist_ok=True)
    for wave in (MILD, DRIFT, SEVERE, SEVEREST):
        _draw(wave)
    for line in _sensitivity():
        print(line, flush=True)


def _draw(wave: Wave) -> None:
    figure, (heat, clock, pages) = plt.subplots(3, 1, figsize=(6.4, 6.4), sharex=True)
    parameters = CardParameters()
    for guarded, label in ((False, "without"), (True, "with policy and breaker")):
        done = run(wave, guarded=guarded)
        at = [s.at / 60 for s in done.seconds]
        heat.plot(at, [s.temperature_c for s in done.seconds], label=label, lw=1)
        clock.plot(at, [s.clock for s in done.seconds], label=f"clock {label}", lw=1)
        pages.plot(at, _smoothed([s.answered for s in done.seconds]), label=label, lw=1)
        if guarded:
            limit = [0.0 if s.state is State.OPEN else s.factor for s in done.seconds]
            clock.plot(at, limit, "k:", label="limit (0: open)", lw=1)
    heat.axhline(parameters.slowdown_c, color="grey", ls="--", lw=0.8)
    heat.set_ylabel("die, °C")
    clock.set_ylabel("of full clock, of limit")
    pages.set_ylabel("answers in time / s")
    pages.set_xlabel(f"minutes; {wave.label} from 5 to {wave.end_s / 60:.0f}")
    for axes in (heat, clock, pages):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(_DOCS / f"{wave.name}.png", dpi=90, metadata={"Software": None})
    plt.close(figure)


def _smoothed(values: list[int]) -> list[float]:
    sums = [sum(values[max(0, n - _SMOOTH_S) : n]) for n in range(1, len(values) + 1)]
    return [total / min(_SMOOTH_S, n) for n, total in enumerate(sums, 1)]


def _sensitivity() -> Iterator[str]:
    """Rows of a table: each parameter at two thirds and at one and a half."""
    columns = ("varied", *(wave.name for wave in _WAVES), *_WORST)
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    yield _row("nothing", CardParameters(), Load())
    for factor in (2 / 3, 1.5):
        for name in _VARIED:
            value = getattr(CardParameters(), name)
            varied = replace(CardParameters(), **{name: value * factor})
            yield _row(f"`{name}` x {factor:.2g}", varied, Load())
        for name in _VARIED_LOAD:
            value = getattr(Load(), name)
            load = replace(Load(), **{name: min(value * factor, 1.0 if value < 1 else 99.0)})
            yield _row(f"`{name}` x {factor:.2g}", CardParameters(), load)


def _row(name: str, parameters: CardParameters, load: Load) -> str:
    ours: list[Run] = []
    without: list[Run] = []
    for wave in _WAVES:
        ours.append(run(wave, guarded=True, parameters=parameters, load=load))
        without.append(run(wave, guarded=False, parameters=parameters, load=load))
    ratios = [f"{a.goodput / b.goodput:.2f}" for a, b in zip(ours, without, strict=True)]
    worst = (
        f"{max(r.opens for r in ours)}",
        f"{max(r.transitions_a_minute for r in ours)}",
        f"{max(r.recovery_s for r in ours):.0f}",
        f"{max(r.above_slowdown_s for r in ours):.1f}",
        f"{max(r.above_slowdown_s for r in without):.0f}",
    )
    return f"| {name} | {' | '.join((*ratios, *worst))} |"


if __name__ == "__main__":
    main()
