"""A hung engine is restarted, a busy or starting one never, and a sidecar restarts alone."""

from __future__ import annotations

import signal
import time

from tests.cluster.events import steady_load
from tests.cluster.kube import Namespace
from tests.cluster.release import NAME, Release, container, restarts, signal_process

RESTARTED_WITHIN_S = 90.0
ENGINE_CORE = "VLLM::EngineCore"


def test_the_engine_is_restarted_when_it_hangs_and_only_then(namespace: Namespace) -> None:
    """One release for all, since a real engine takes long to start."""
    release = Release(namespace)
    release.install()
    (pod,) = release.pods()
    assert restarts(pod) == {NAME: 0, "vllm": 0}  # it was left alone while it started

    _busy_is_not_hung(release)
    _sidecar_restarts_alone(release)
    _hung_engine_is_restarted(release)


def _busy_is_not_hung(release: Release) -> None:
    """More than it can read, for longer than a hung engine is left alone."""
    with steady_load(release.url, rate_per_s=40) as load:
        time.sleep(75)
    assert {outcome.kind for outcome in load.outcomes} == {"answered", "refused"}
    (pod,) = release.pods()
    assert restarts(pod) == {NAME: 0, "vllm": 0}


def _sidecar_restarts_alone(release: Release) -> None:
    (pod,) = release.pods()
    engine = container(pod, "vllm")["containerID"]
    signal_process(pod, "hunyuan-ocr serve", signal.SIGKILL)

    def restarted() -> bool:
        (pod,) = release.pods()
        return restarts(pod)[NAME] == 1 and release.ready(1)

    release.namespace.wait_for("the sidecar is back", restarted, 60)
    time.sleep(15)  # three periods of the engine's liveness probe
    (pod,) = release.pods()
    assert restarts(pod) == {NAME: 1, "vllm": 0}
    assert container(pod, "vllm")["containerID"] == engine
    assert release.read().startswith("Invoice")


def _hung_engine_is_restarted(release: Release) -> None:
    (pod,) = release.pods()
    with steady_load(release.url, rate_per_s=0.5):
        signal_process(pod, ENGINE_CORE, signal.SIGSTOP)

        def restarted() -> bool:
            (pod,) = release.pods()
            return restarts(pod)["vllm"] == 1

        release.namespace.wait_for("vLLM's container is restarted", restarted, RESTARTED_WITHIN_S)
        release.wait_until_ready(1)
    (pod,) = release.pods()
    assert restarts(pod) == {NAME: 1, "vllm": 1}
    assert release.read().startswith("Invoice")
