"""Things that happen to a release while callers keep sending, and what the callers noticed."""

from __future__ import annotations

import itertools
import json
import math
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.cluster.nodes import uncordoned_afterwards
from tests.cluster.release import Release
from tests.cluster.running import ROOT
from tests.cluster.steady import Noted, Outcome, Totals

# What one engine does while another starts on the same cores.
RATE_PER_S = 1.0
# So long before and after each event is sent too: the calm is part of what is judged.
_CALM_S = 3.0
# An answer may take as long as its request's deadline.
_ANSWERS_WITHIN_S = 130.0


@dataclass(slots=True)
class Load:
    """Callers that send all the time; what came of it is there once they have stopped."""

    process: subprocess.Popen[str]
    noted: Noted = field(default_factory=Noted)

    @property
    def outcomes(self) -> list[Outcome]:
        return self.noted.outcomes

    def begun(self) -> float:
        """Wait until callers begin; when they do, in Unix seconds."""
        assert self.process.stdout
        said = self.process.stdout.readline()
        assert said, "the callers ended"
        return float(said)

    def renew(self) -> float:
        """As `begun`, with others in place of all callers, once these have been answered: who
        keeps a connection asks only the pod it leads to.
        """
        self.process.send_signal(signal.SIGUSR1)
        return self.begun()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        lines = self.process.communicate(timeout=_ANSWERS_WITHIN_S)[0].splitlines()
        said = json.loads(lines[-1])
        outcomes = [Outcome(**outcome) for outcome in said["outcomes"]]
        self.noted = Noted(outcomes, said["asked_to_leave_at"])


@contextmanager
def steady_load(url: str, rate_per_s: float = RATE_PER_S) -> Iterator[Load]:
    """Send pages while inside."""
    words = [sys.executable, "-m", "tests.cluster.steady", url, "--rate", str(rate_per_s)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        load = Load(process)
        try:
            load.begun()
            time.sleep(_CALM_S)
            yield load
            time.sleep(_CALM_S)
        finally:
            load.stop()


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


Event = tuple[str, Callable[[], None]]


def all_noticed(
    release: Release, events: Sequence[Event], report: Callable[[str], None] = lambda _: None
) -> list[Noticed]:
    """Let one happen after the other under a steady load, each with callers of its own; recovered
    is when all replicas are ready.
    """
    replicas, begins, times = len(release.pods()), [], []
    with steady_load(release.url) as load:
        for name, happen in events:
            begins.append(load.renew())
            time.sleep(_CALM_S)
            began_at, began = time.time(), time.monotonic()
            happen()
            release.wait_until_ready(replicas)
            recovery_s = round(time.monotonic() - began, 1)
            report(f"{name}: {recovery_s} s")
            times.append((name, began_at, recovery_s))
            time.sleep(_CALM_S)
    windows = itertools.pairwise([*begins, math.inf])
    return [
        _of(name, load.noted.between(*window), began_at, recovery_s)
        for (name, began_at, recovery_s), window in zip(times, windows, strict=True)
    ]


def _of(name: str, noted: Noted, began_at: float, recovery_s: float) -> Noticed:
    return Noticed(
        name,
        Totals.of(noted.outcomes),
        recovery_s,
        len(noted.asked_to_leave_at),
        tuple(
            Lost(
                round(outcome.sent_at - began_at, 1),
                round(outcome.done_at - began_at, 1),
                outcome.detail,
            )
            for outcome in noted.outcomes
            if outcome.kind == "lost"
        ),
        Counter(outcome.detail for outcome in noted.outcomes if outcome.kind == "refused"),
    )


def rollout_events(release: Release) -> tuple[Event, ...]:
    """A rolling upgrade, the deletion of a pod and the drain of a node."""
    return (
        ("rolling upgrade", lambda: rolling_upgrade(release)),
        ("pod delete", lambda: pod_delete(release)),
        ("node drain", lambda: node_drain(release)),
    )


def rolling_upgrade(release: Release) -> None:
    """New pods for old ones, as any changed value of the pod brings them."""
    release.change({"podAnnotations.upgraded": f"at-{time.time_ns()}"})


def pod_delete(release: Release) -> None:
    name = release.pods()[0]["metadata"]["name"]
    release.namespace.kubectl("delete", "pod", name, "--wait=false")


def node_drain(release: Release) -> None:
    """Of the node with the younger pod, which may have pods again afterwards."""
    cluster = release.namespace.cluster
    node = str(release.pods()[-1]["spec"]["nodeName"])
    words = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
    with uncordoned_afterwards(cluster, node):
        cluster.kubectl("drain", node, *words, timeout_s=130)
