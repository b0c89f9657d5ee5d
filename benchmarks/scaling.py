"""The number of pods under a load that comes, stays and goes, by KEDA and by the HPA.

make figure NAME=scaling
python -m benchmarks.scaling --autoscaler keda --steady-s 600

By the HPA alone where nothing else is asked for, since each takes eight minutes.
Needs root. A cluster that runs already (`make cluster-up`) is used; else one is started and ended.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from functools import partial

from scripts.chart import definitions
from tests.cluster import addons
from tests.cluster.running import fresh_namespace, running_cluster
from tests.cluster.scaling import Autoscaler, scaled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--autoscaler", choices=["keda", "hpa"], action="append")
    parser.add_argument("--steady-s", type=float, default=30, help="seconds of a load that stays")
    given = parser.parse_args()
    autoscalers: list[Autoscaler] = given.autoscaler or ["hpa"]
    report = partial(print, file=sys.stderr, flush=True)
    seen = []
    definitions.provide()
    with running_cluster(addons.PROGRAMS) as cluster:
        for autoscaler in autoscalers:
            with fresh_namespace(cluster, f"scaling-{autoscaler}") as namespace:
                seen.append(scaled(namespace, autoscaler, given.steady_s, report))
                report(json.dumps(asdict(seen[-1])))
    figure = {
        "max_replicas": max(each.most for each in seen),
        "end_replicas": max(each.end for each in seen),
        "failed": sum(each.totals.lost for each in seen),
        "by_autoscaler": [asdict(each) for each in seen],
    }
    print(json.dumps(figure))


if __name__ == "__main__":
    main()
