"""Run one figure's measurement: `python -m benchmarks NAME`."""

from __future__ import annotations

import runpy
import sys

# A figure's name and the module that measures it; its last line of output is one JSON object.
FIGURES = {
    "cer": "benchmarks.cer",
    "mixed-up": "benchmarks.mixed_up",
    "isolation": "benchmarks.isolation",
    "engine-throughput": "benchmarks.engine_throughput",
    "overhead": "benchmarks.overhead",
    "goodput": "benchmarks.goodput",
    "goodput-wall-clock": "benchmarks.goodput_wall_clock",
    "overload": "benchmarks.overload",
    "fairness": "benchmarks.fairness",
    "admission": "benchmarks.admission",
}


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in FIGURES:
        print(f"usage: make figure NAME=…, one of: {', '.join(FIGURES)}", file=sys.stderr)
        return 2
    module = FIGURES[sys.argv.pop(1)]
    runpy.run_module(module, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
