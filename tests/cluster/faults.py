"""Faults that happen to two replicas under a steady load, the mild ones and those that kill."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from scripts.cluster import local, nodes
from scripts.cluster.cluster import backend
from tests.cluster import addons
from tests.cluster.events import Event, node_drain, pod_delete, rolling_upgrade
from tests.cluster.kube import Namespace
from tests.cluster.release import Release, signal_process, two_replicas

Kind = Literal["graceful", "kill"]

REPLICAS = 2
# So long something is away that the service only leans on.
AWAY_S = 8.0
# Below the nodes' grace here (10 s; 50 s by default): a longer silence is the nodes' own, and once
# the API server is back Kubernetes takes every pod out of its Service for a moment.
API_AWAY_S = 8.0
CACHE_MIB = 64
_SLOW = ("tbf", "rate", "512kbit", "burst", "16kb", "latency", "400ms")
_REDIS_PORT = 6379


@dataclass(slots=True)
class Redis:
    """A Redis on the control plane's address, which every pod reaches."""

    folder: Path
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        return f"redis://{local.CONTROL_PLANE.address}:{_REDIS_PORT}/0"

    def start(self) -> None:
        binary = shutil.which("redis-server")
        assert binary, "install redis-server"
        words = ("--port", str(_REDIS_PORT), "--bind", "0.0.0.0", "--protected-mode", "no")
        self.process = subprocess.Popen(
            (binary, *words, "--save", "", "--dir", str(self.folder)), stdout=subprocess.DEVNULL
        )

    def callers(self) -> int:
        """How many others hold a connection."""
        address = local.CONTROL_PLANE.address, _REDIS_PORT
        with socket.create_connection(address, timeout=5) as connection:
            connection.sendall(b"INFO clients\r\n")
            told = connection.recv(4096).decode()
        (line,) = (line for line in told.splitlines() if line.startswith("connected_clients:"))
        return int(line.partition(":")[2]) - 1

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@dataclass(frozen=True, slots=True)
class Site:
    """What faults happen to."""

    release: Release
    redis: Redis

    def pod(self) -> dict[str, Any]:
        return self.release.pods()[0]

    @property
    def node(self) -> str:
        """A node that is not the control plane."""
        return self.release.namespace.cluster.nodes()[-1]


@contextmanager
def replicas_with_everything(namespace: Namespace) -> Iterator[Site]:
    """Two replicas of real vLLM with quotas in Redis, read by Prometheus."""
    sets: Mapping[str, object] = {
        "redis.existingSecret": "redis",
        "sidecar.settings.QUOTA_REQUESTS_PER_S": 1000,
        "engine.cacheSizeLimit": f"{CACHE_MIB}Mi",
        # Sooner than by default: the table is to be there within ten minutes.
        "sidecar.settings.ENGINE_HUNG_LIMIT_S": 12,
        **addons.LETS_PROMETHEUS_IN,
    }  # fmt: skip
    with ExitStack() as stack:
        redis = Redis(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        stack.callback(redis.stop)
        redis.start()
        secret = ("create", "secret", "generic", "redis", f"--from-literal=url={redis.url}")
        namespace.kubectl(*secret)
        stack.enter_context(addons.prometheus(namespace.cluster))
        yield Site(stack.enter_context(two_replicas(namespace, sets)), redis)


def _redis_away(site: Site) -> None:
    assert site.redis.callers() >= REPLICAS, "the pods keep their quotas elsewhere"
    site.redis.stop()
    time.sleep(AWAY_S)
    site.redis.start()


def _api_server_away(_: Site) -> None:
    process = _control_plane_process("kube-apiserver")
    os.kill(process, signal.SIGSTOP)
    try:
        time.sleep(API_AWAY_S)
    finally:
        os.kill(process, signal.SIGCONT)


def _control_plane_process(program: str) -> int:
    for process in nodes.alive(local.CONTROL_PLANE.network):
        with suppress(OSError):
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if words[0].endswith(program.encode()):
                return process
    raise AssertionError(f"no {program}")


def _prometheus_away(site: Site) -> None:
    cluster = site.release.namespace.cluster
    with addons.no_prometheus(cluster):
        time.sleep(AWAY_S)


def _slow_network(site: Site) -> None:
    """Half a megabit a second to and from one node."""
    legs = ((nodes.PREFIX + site.node, "eth0"), (nodes.SWITCH, site.node))
    with ExitStack() as stack:
        for network, device in legs:
            _tc(network, "add", device, *_SLOW)
            stack.callback(_tc, network, "del", device)
        time.sleep(AWAY_S)


def _tc(network: str, verb: str, device: str, *discipline: str) -> None:
    words = ("tc", "-n", network, "qdisc", verb, "dev", device, "root", *discipline)
    subprocess.run(words, check=True)


def _full_cache(site: Site) -> None:
    """More than its limit: the kubelet ends the pod."""
    pod = site.pod()["metadata"]["name"]
    script = f"dd if=/dev/zero of=$VLLM_CACHE_ROOT/full bs=1M count={2 * CACHE_MIB}"
    site.release.namespace.exec(pod, "sh", "-c", script, container="vllm")

    def evicted() -> bool:
        return any(_ended(found) for found in site.release.pods())

    site.release.namespace.wait_for("the pod is evicted", evicted, 120)
    site.release.namespace.kubectl("delete", "pod", pod)


def _ended(pod: Mapping[str, Any]) -> bool:
    return bool(pod["status"]["phase"] == "Failed")


def _signal(words: str, signum: signal.Signals) -> Callable[[Site], None]:
    def happen(site: Site) -> None:
        before = _restarts(site)
        signal_process(site.pod(), words, signum)

        def restarted() -> bool:
            return _restarts(site) > before

        site.release.namespace.wait_for("a container is restarted", restarted, 120)

    return happen


def _restarts(site: Site) -> int:
    statuses = [
        status
        for pod in site.release.pods()
        for key in ("initContainerStatuses", "containerStatuses")
        for status in pod["status"].get(key, ())
    ]
    return sum(int(status["restartCount"]) for status in statuses)


def _node_lost(site: Site) -> None:
    """A power cut; the node comes back when its pods have been replaced."""
    cluster, node = site.release.namespace.cluster, site.node
    backend().stop_node(node)

    def missed() -> bool:
        return node not in cluster.nodes()

    site.release.namespace.wait_for("the node is missed", missed, 90)
    time.sleep(AWAY_S)
    backend().start_node(node)


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    kind: Kind
    happen: Callable[[Site], None]

    def event(self, site: Site) -> Event:
        return self.name, lambda: self.happen(site)


FAULTS = (
    Fault("rolling upgrade", "graceful", lambda site: rolling_upgrade(site.release)),
    Fault("pod delete", "graceful", lambda site: pod_delete(site.release)),
    Fault("node drain", "graceful", lambda site: node_drain(site.release)),
    Fault("Redis down", "graceful", _redis_away),
    Fault("API server down", "graceful", _api_server_away),
    Fault("Prometheus down", "graceful", _prometheus_away),
    Fault("slow network", "graceful", _slow_network),
    Fault("sidecar SIGKILL", "kill", _signal("hunyuan-ocr serve", signal.SIGKILL)),
    Fault("engine SIGKILL", "kill", _signal("VLLM::EngineCore", signal.SIGKILL)),
    Fault("engine SIGSTOP", "kill", _signal("VLLM::EngineCore", signal.SIGSTOP)),
    Fault("compile cache full", "kill", _full_cache),
    Fault("node loss", "kill", _node_lost),
)
