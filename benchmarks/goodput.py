"""Answers within their deadline under overload, as fractions of each policy's own peak.

    make figure NAME=goodput

Simulated in virtual time around the service's real traffic classes (`benchmarks/simulator`).
"""

from __future__ import annotations

import json
from statistics import mean

from benchmarks.simulator.run import POLICIES, PolicyName
from benchmarks.simulator.scenarios import overload

_PEAK_LOADS = (0.75, 1.0, 1.25, 1.5)
_OVERLOADS = (2.0, 5.0, 10.0)
_SEEDS = (1, 2)


def fractions(policy: PolicyName) -> dict[str, float]:
    """Goodput at each overload / the best at any load."""
    loads = (*_PEAK_LOADS, *_OVERLOADS)
    goodput = {load: mean(overload(policy, load, seed=s).goodput for s in _SEEDS) for load in loads}
    for load, pages in goodput.items():
        print(f"{policy:14} load {load:5g}: {pages:6.2f} answers in time a second")
    peak = max(goodput.values())
    return {f"{load:g}x": round(goodput[load] / peak, 3) for load in _OVERLOADS}


def main() -> None:
    print(json.dumps({policy: fractions(policy) for policy in POLICIES}))


if __name__ == "__main__":
    main()
