"""Two replicas of real vLLM under a steady load, and every fault: what callers notice.

make figure NAME=faults
python -m benchmarks.faults --only "node loss"

Needs root. A cluster that runs already (`make cluster-up`) is used; else one is started and ended.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import asdict
from typing import Any

from benchmarks.rollout import event
from tests.cluster import addons
from tests.cluster.faults import FAULTS, replicas_with_everything
from tests.cluster.running import fresh_namespace, running_cluster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [fault.name for fault in FAULTS]
    parser.add_argument("--only", action="append", choices=names, help="one fault; may be repeated")
    given = parser.parse_args()
    chosen = given.only or names
    table: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with (
        running_cluster(addons.PROGRAMS) as cluster,
        fresh_namespace(cluster, "faults-figure") as namespace,
    ):
        print("installing two replicas", file=sys.stderr, flush=True)
        with replicas_with_everything(namespace) as site:
            for fault in FAULTS:
                if fault.name not in chosen:
                    continue
                noticed = fault.noticed(site)
                row = event(noticed)
                details = json.dumps([asdict(lost) for lost in noticed.lost])
                print(json.dumps(row), details, noticed.refused, file=sys.stderr, flush=True)
                table["graceful" if fault.kind == "graceful" else "kills"].append(row)
    print(json.dumps(table))


if __name__ == "__main__":
    main()
