"""Run one figure's measurement: `python -m benchmarks NAME`."""

from __future__ import annotations

import runpy
import sys

# A figure's name and the module that measures it; its last line of output is one JSON object.
FIGURES = {
    "cer": "benchmarks.cer",
    "prepare": "benchmarks.prepare",
    "cap": "benchmarks.cap",
    "memory": "benchmarks.memory",
    "orientation": "benchmarks.orientation",
    "mixed-up": "benchmarks.mixed_up",
    "isolation": "benchmarks.isolation",
    "engine-throughput": "benchmarks.engine_throughput",
    "overhead": "benchmarks.overhead",
    "rollout": "benchmarks.rollout",
    "scaling": "benchmarks.scaling",
    "faults": "benchmarks.faults",
    "goodput": "benchmarks.goodput",
    "goodput-wall-clock": "benchmarks.goodput_wall_clock",
    "goodput-cpu-engine": "benchmarks.goodput_cpu_engine",
    "overload": "benchmarks.overload",
    "fairness": "benchmarks.fairness",
    "admission": "benchmarks.admission",
    "heatwave": "benchmarks.heatwave",
    "heatwave-wall-clock": "benchmarks.heatwave.wall_clock",
    "panels": "benchmarks.panels",
    "breaker-peers": "benchmarks.breaker_peers",
    "knee": "benchmarks.knee",
    "usage": "benchmarks.usage",
    "series": "benchmarks.series",
    "telemetry-cost": "benchmarks.telemetry_cost",
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
