"""Does a flood of batch pages slow interactive ones, and does a greedy tenant get more than others?

    make figure NAME=fairness

Simulated in virtual time around the service's real traffic classes (`benchmarks/simulator`).
`interactive_p95_extra_pages`: p95 of interactive response at half load under the flood, less that
without it, in median pages. `greedy_share_excess`: what a tenant that asks for ten times the
card's capacity gets above an equal part. `storm_over_after_s`: how long after two seconds at ten
times the load clients that honour Retry-After still come back. The worst of several seeds each.
"""

from __future__ import annotations

import json

from benchmarks.simulator.run import POLICIES, PolicyName
from benchmarks.simulator.scenarios import quickness, shares, storm

_SEEDS = (1, 2, 3)


def measured(policy: PolicyName) -> dict[str, float]:
    quick = [quickness(policy, seed=seed) for seed in _SEEDS]
    excess = max(shares(policy, seed=seed).greedy_excess for seed in _SEEDS)
    worst = max(quick, key=lambda q: q.extra_pages)
    print(
        f"{policy:14} interactive p95 {worst.alone_p95_s:.2f} s alone, {worst.flooded_p95_s:.2f} s "
        f"flooded; batch gets {worst.batch_share:.0%} of pages; greedy excess {excess:+.0%}"
    )
    return {
        "interactive_p95_extra_pages": round(worst.extra_pages, 3),
        "greedy_share_excess": round(excess, 3),
    }


def main() -> None:
    storm_s = max(storm("ours", "honour", seed=seed).last_retry_after_s for seed in _SEEDS)
    others = {policy: measured(policy) for policy in POLICIES if policy != "ours"}
    print(json.dumps({**measured("ours"), "storm_over_after_s": round(storm_s, 1), **others}))


if __name__ == "__main__":
    main()
