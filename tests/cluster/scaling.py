"""A release whose pods an autoscaler counts, under a load that comes, stays and goes.

The service's own CPU engine stands in for vLLM, held to a part of a core: three real engines
would starve each other on a small machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

from tests.cluster import addons
from tests.cluster.events import steady_load
from tests.cluster.kube import Namespace
from tests.cluster.release import EMBEDDED, NAME, Release
from tests.cluster.steady import Totals

Autoscaler = Literal["keda", "hpa"]

MOST = 3
# In what one pod can do: with all three each has two thirds of it, which is below the target, and
# with two it would be above.
HEAVY, LIGHT = 2.1, 0.2
DOWN_AFTER_S = 60
_CHANGE_WITHIN_S = 300.0
# KEDA goes to its fallback after three failures, half a minute apart.
BLIND_S = 120.0
_SAMPLES = 7


@dataclass(frozen=True, slots=True)
class Scaled:
    """What happened. `steady` and `blind` are the numbers of pods asked for while the load stayed
    and while there was no metric; `most` of all, `end` at the end."""

    autoscaler: Autoscaler
    up_s: float
    most: int
    steady: tuple[int, ...]
    blind: tuple[int, ...]
    down_s: float
    end: int
    totals: Totals
    lost: tuple[str, ...]


@dataclass(slots=True)
class Watch:
    """Looks at how many pods the release is asked to have."""

    release: Release
    most: int = 0

    def asked(self) -> int:
        count = int(self.release.namespace.get("deployment", NAME)["spec"]["replicas"])
        self.most = max(self.most, count)
        return count

    def until_ready(self, count: int) -> float:
        """Seconds until so many are asked for and all of them are ready."""
        began = time.monotonic()
        namespace = self.release.namespace
        namespace.wait_for(
            f"{count} pods", lambda: self.asked() == count and self.release.ready(count),
            _CHANGE_WITHIN_S,
        )  # fmt: skip
        return round(time.monotonic() - began, 1)

    def during(self, seconds: float) -> tuple[int, ...]:
        """Every number of pods that was asked for meanwhile."""
        seen, until = set(), time.monotonic() + seconds
        while time.monotonic() < until:
            seen.add(self.asked())
            time.sleep(1)
        return tuple(sorted(seen))


def scaled(
    namespace: Namespace, autoscaler: Autoscaler, steady_s: float, report: Callable[[str], None]
) -> Scaled:
    """Load one pod with more than it can do, until there are enough; stop Prometheus for a while;
    take the load away."""
    with _autoscaled(namespace, autoscaler) as release:
        watch, pages_per_s = Watch(release), 1 / _page_s(release)
        report(f"{autoscaler}: one pod reads {pages_per_s:.2f} pages/s")
        with steady_load(release.url, HEAVY * pages_per_s) as heavy:
            up_s = watch.until_ready(MOST)
            report(f"{MOST} pods after {up_s} s")
            steady = watch.during(steady_s)
            report(f"asked for under a steady load: {steady}")
            with addons.no_prometheus(namespace.cluster):
                blind = watch.during(BLIND_S)
            report(f"asked for without Prometheus: {blind}")
        with steady_load(release.url, LIGHT * pages_per_s) as light:
            down_s = watch.until_ready(1)
            report(f"one pod after {down_s} s")
    outcomes = heavy.outcomes + light.outcomes
    lost = tuple(outcome.detail for outcome in outcomes if outcome.kind == "lost")
    totals = Totals.of(outcomes)
    return Scaled(autoscaler, up_s, watch.most, steady, blind, down_s, 1, totals, lost)


@contextmanager
def _autoscaled(namespace: Namespace, autoscaler: Autoscaler) -> Iterator[Release]:
    release = Release(namespace, (EMBEDDED,))
    sets: Mapping[str, object] = {
        "autoscaling.mode": autoscaler,
        "autoscaling.maxReplicas": MOST,
        "autoscaling.scaleDownAfterSeconds": DOWN_AFTER_S,
        **addons.LETS_PROMETHEUS_IN,
        "sidecar.embeddedWorkers": 1,
        "sidecar.resources.requests.cpu": "100m",
        "sidecar.resources.limits.cpu": "400m",
    }  # fmt: skip
    if autoscaler == "keda":  # the adapter has its own configuration
        sets = {**sets, "autoscaling.prometheus.address": "http://prometheus.monitoring.svc:9090"}
    cluster = namespace.cluster
    with ExitStack() as stack:
        stack.enter_context(addons.prometheus(cluster))
        kind = addons.keda if autoscaler == "keda" else addons.prometheus_adapter
        stack.enter_context(kind(cluster))
        release.install(sets)
        try:
            yield release
        finally:
            release.uninstall()  # KEDA's objects go while KEDA is there


def _page_s(release: Release) -> float:
    """Seconds that one pod takes for a page when it has nothing else to do."""
    taken = []
    for _ in range(_SAMPLES):
        began = time.monotonic()
        release.read()
        taken.append(time.monotonic() - began)
    return statistics.median(taken)
