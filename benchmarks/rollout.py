"""Two replicas of real vLLM on a real cluster: what callers notice while pods come and go.

make figure NAME=rollout

Needs root. A cluster that runs already (`make cluster-up`) is used; else one is started and ended.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from tests.cluster.events import Noticed, all_noticed, rollout_events
from tests.cluster.release import two_replicas
from tests.cluster.running import fresh_namespace, running_cluster


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def row(noticed: Noticed) -> dict[str, Any]:
    """An event's line of a figure; what was lost and refused is said in words."""
    if noticed.lost or noticed.refused:
        say(f"{noticed.event}: lost {noticed.lost}, refused {dict(noticed.refused)}")
    return {"event": noticed.event, **asdict(noticed.totals), "recovery_s": noticed.recovery_s}


def main() -> None:
    with running_cluster() as cluster, fresh_namespace(cluster, "rollout-figure") as namespace:
        say("installing two replicas")
        with two_replicas(namespace) as release:
            seen = all_noticed(release, rollout_events(release), say)
    print(json.dumps({"events": [row(noticed) for noticed in seen]}))


if __name__ == "__main__":
    main()
