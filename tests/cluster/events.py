"""Things that happen to a release while callers keep sending, and what the callers noticed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.cluster.kube import Cluster
from tests.cluster.release import ROOT, Release
from tests.cluster.steady import Outcome, Totals

RATE_PER_S = 1.5
# So long before the event and after the recovery is sent too: the calm is part of what is judged.
_CALM_S = 5.0
# An answer may take as long as its request's deadline.
_ANSWERS_WITHIN_S = 130.0


@dataclass(slots=True)
class Load:
    """What came of a steady load; filled when it ends."""

    outcomes: list[Outcome] = field(default_factory=list)


@contextmanager
def steady_load(url: str, rate_per_s: float = RATE_PER_S) -> Iterator[Load]:
    """Send pages while inside; the outcomes are there afterwards."""
    load = Load()
    words = [sys.executable, "-m", "tests.cluster.steady", url, "--rate", str(rate_per_s)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            time.sleep(_CALM_S)
            yield load
            time.sleep(_CALM_S)
        finally:
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=_ANSWERS_WITHIN_S)
    load.outcomes = [Outcome(**outcome) for outcome in json.loads(said)]


@dataclass(frozen=True, slots=True)
class Noticed:
    """An event as its callers saw it; `asked_to_leave` counts answers that end their connection."""

    event: str
    totals: Totals
    recovery_s: float
    asked_to_leave: int
    lost: tuple[str, ...]


def noticed(event: str, release: Release, happen: Callable[[], None], replicas: int) -> Noticed:
    """Let it happen under a steady load; recovered is when all replicas are ready again."""
    with steady_load(release.url) as load:
        began = time.monotonic()
        happen()
        release.wait_until_ready(replicas)
        recovery_s = time.monotonic() - began
    return Noticed(
        event,
        Totals.of(load.outcomes),
        round(recovery_s, 1),
        sum(outcome.closed for outcome in load.outcomes),
        tuple(outcome.detail for outcome in load.outcomes if outcome.kind == "lost"),
    )


def rolling_upgrade(release: Release) -> None:
    """New pods for old ones, as any changed value of the pod brings them."""
    release.upgrade({"replicas": 2, "podAnnotations.upgraded": f"at-{time.time_ns()}"})


def pod_delete(release: Release) -> None:
    name = release.pods()[0]["metadata"]["name"]
    release.namespace.kubectl("delete", "pod", name, "--wait=false")


def node_drain(cluster: Cluster, node: str) -> None:
    words = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
    cluster.kubectl("drain", node, *words, timeout_s=130)
