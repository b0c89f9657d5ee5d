"""Two replicas of real vLLM under a steady load, and every fault: what callers notice.

make figure NAME=faults
python -m benchmarks.faults --only "node loss"

Needs root. A cluster that runs already (`make cluster-up`) is used; else one is started and ended.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from benchmarks.rollout import row, say
from tests.cluster import addons
from tests.cluster.events import all_noticed
from tests.cluster.faults import FAULTS, replicas_with_everything
from tests.cluster.running import fresh_namespace, running_cluster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [fault.name for fault in FAULTS]
    parser.add_argument("--only", action="append", choices=names, help="one fault; may be repeated")
    given = parser.parse_args()
    chosen = [fault for fault in FAULTS if fault.name in (given.only or names)]
    with (
        running_cluster(addons.PROGRAMS) as cluster,
        fresh_namespace(cluster, "faults-figure") as namespace,
    ):
        say("installing two replicas")
        with replicas_with_everything(namespace) as site:
            seen = all_noticed(site.release, [fault.event(site) for fault in chosen], say)
            table: dict[str, list[dict[str, Any]]] = {"graceful": [], "kills": []}
            for fault, noticed in zip(chosen, seen, strict=True):
                table["graceful" if fault.kind == "graceful" else "kills"].append(row(noticed))
            print(json.dumps(table), flush=True)  # to take it all down lasts a while


if __name__ == "__main__":
    main()
