"""Two replicas of real vLLM on a real cluster: what callers notice while pods come and go.

make figure NAME=rollout

Needs root. A cluster that runs already (`make cluster-up`) is used; else one is started and ended.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from tests.cluster.events import Noticed, rollout_events
from tests.cluster.release import two_replicas
from tests.cluster.running import fresh_namespace, running_cluster


def event(noticed: Noticed) -> dict[str, Any]:
    return {"event": noticed.event, **asdict(noticed.totals), "recovery_s": noticed.recovery_s}


def main() -> None:
    events = []
    with running_cluster() as cluster, fresh_namespace(cluster, "rollout-figure") as namespace:
        print("installing two replicas", file=sys.stderr, flush=True)
        with two_replicas(namespace) as release:
            for noticed in rollout_events(release):
                events.append(event(noticed))
                print(
                    json.dumps(events[-1]),
                    noticed.lost,
                    noticed.refused,
                    file=sys.stderr,
                    flush=True,
                )
    print(json.dumps({"events": events}))


if __name__ == "__main__":
    main()
