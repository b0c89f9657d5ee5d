"""Things that happen to a release while callers keep sending, and what the callers noticed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tests.cluster.kube import Cluster
from tests.cluster.nodes import uncordoned_afterwards
from tests.cluster.release import Release
from tests.cluster.running import ROOT
from tests.cluster.steady import Noted, Outcome, Totals

# What one engine does while another starts on the same cores.
RATE_PER_S = 1.0
# So long before the event and after the recovery is sent too: the calm is part of what is judged.
_CALM_S = 3.0
# An answer may take as long as its request's deadline.
_ANSWERS_WITHIN_S = 130.0


@contextmanager
def steady_load(url: str, rate_per_s: float = RATE_PER_S) -> Iterator[Noted]:
    """Send pages while inside; what came of them is there afterwards."""
    load = Noted()
    words = [sys.executable, "-m", "tests.cluster.steady", url, "--rate", str(rate_per_s)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            time.sleep(_CALM_S)
            yield load
            time.sleep(_CALM_S)
        finally:
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=_ANSWERS_WITHIN_S)
    noted = json.loads(said)
    load.outcomes = [Outcome(**outcome) for outcome in noted["outcomes"]]
    load.asked_to_leave = noted["asked_to_leave"]


@dataclass(frozen=True, slots=True)
class Lost:
    """A page without an answer; seconds since the event began, below zero before it."""

    sent_s: float
    done_s: float
    detail: str


@dataclass(frozen=True, slots=True)
class Noticed:
    """An event as its callers saw it; `asked_to_leave` counts answers that end their connection,
    `refused` the codes of refusals."""

    event: str
    totals: Totals
    recovery_s: float
    asked_to_leave: int
    lost: tuple[Lost, ...]
    refused: Mapping[str, int]


def noticed(event: str, release: Release, happen: Callable[[], None], replicas: int) -> Noticed:
    """Let it happen under a steady load; recovered is when all replicas are ready again."""
    with steady_load(release.url) as load:
        began, began_at = time.monotonic(), time.time()
        happen()
        release.wait_until_ready(replicas)
        recovery_s = time.monotonic() - began
    return Noticed(
        event,
        Totals.of(load.outcomes),
        round(recovery_s, 1),
        load.asked_to_leave,
        tuple(
            Lost(
                round(outcome.sent_at - began_at, 1),
                round(outcome.done_at - began_at, 1),
                outcome.detail,
            )
            for outcome in load.outcomes
            if outcome.kind == "lost"
        ),
        Counter(outcome.detail for outcome in load.outcomes if outcome.kind == "refused"),
    )


def rollout_events(release: Release) -> Iterator[Noticed]:
    """A rolling upgrade, the deletion of a pod and the drain of a node, one after the other."""
    cluster, replicas = release.namespace.cluster, len(release.pods())
    yield noticed("rolling upgrade", release, lambda: rolling_upgrade(release, replicas), replicas)
    yield noticed("pod delete", release, lambda: pod_delete(release), replicas)
    node = str(release.pods()[-1]["spec"]["nodeName"])
    with uncordoned_afterwards(cluster, node):
        yield noticed("node drain", release, lambda: node_drain(cluster, node), replicas)


def rolling_upgrade(release: Release, replicas: int) -> None:
    """New pods for old ones, as any changed value of the pod brings them."""
    release.upgrade({"replicas": replicas, "podAnnotations.upgraded": f"at-{time.time_ns()}"})


def pod_delete(release: Release) -> None:
    name = release.pods()[0]["metadata"]["name"]
    release.namespace.kubectl("delete", "pod", name, "--wait=false")


def node_drain(cluster: Cluster, node: str) -> None:
    words = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
    cluster.kubectl("drain", node, *words, timeout_s=130)
