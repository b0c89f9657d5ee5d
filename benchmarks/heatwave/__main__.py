"""Heat waves over a simulated RTX 4090 D, with the thermal policy and breaker and without.

make figure NAME=heatwave

`mild`: software throttling; `severe`: all fans stop. The last line's ratios are goodput with /
without; `opens` (full ones), `recovery_s` and `above_slowdown_s` are the worst of all waves, with.
"""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table

from benchmarks.heatwave.run import Run, run
from benchmarks.heatwave.waves import WAVES

_COLUMNS = (
    "wave",
    "goodput",
    "without",
    "ratio",
    "hottest °C",
    "without",
    "above threshold s",
    "without",
    "least limit",
    "opens",
    "a minute",
    "recovery s",
    "shutdowns",
    "without",
)


def row(ours: Run, without: Run) -> list[str]:
    return [
        ours.wave.label,
        f"{ours.goodput:.1f}",
        f"{without.goodput:.1f}",
        f"{ours.goodput / without.goodput:.2f}",
        f"{ours.hottest_c:.1f}",
        f"{without.hottest_c:.1f}",
        f"{ours.above_slowdown_s:.0f}",
        f"{without.above_slowdown_s:.0f}",
        f"{ours.least_factor:.2f}",
        f"{ours.opens}",
        f"{ours.transitions_a_minute}",
        f"{ours.recovery_s:.0f}",
        f"{ours.shutdowns}",
        f"{without.shutdowns}",
    ]


def main() -> None:
    table = Table(*_COLUMNS)
    ratios: dict[str, float] = {}
    guarded = []
    for wave in WAVES:
        ours, without = run(wave, guarded=True), run(wave, guarded=False)
        table.add_row(*row(ours, without))
        ratios[wave.name] = ours.goodput / without.goodput
        guarded.append(ours)
    Console(width=160).print(table)
    print(
        json.dumps(
            {
                "mild_goodput_ratio": round(ratios["mild"], 3),
                "severe_goodput_ratio": round(ratios["severe"], 3),
                "opens": max(r.opens for r in guarded),
                "recovery_s": max(r.recovery_s for r in guarded),
                "above_slowdown_s": round(max(r.above_slowdown_s for r in guarded), 1),
            }
        )
    )


if __name__ == "__main__":
    main()
