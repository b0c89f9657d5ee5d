"""A release of the chart, and the pods, containers and processes it runs as."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from tests.cluster.kube import Namespace, is_true
from tests.cluster.nodes import cards
from tests.cluster.running import ROOT
from tests.engine.papers import invoices

CHART = ROOT / "charts" / "hunyuan-ocr"
CPU_TRIAL = CHART / "ci" / "cpu-trial-values.yaml"
PRETENDED_4090_D = (CPU_TRIAL, Path(__file__).with_name("pretended-4090-d.yaml"))
EMBEDDED = CHART / "ci" / "embedded-values.yaml"
CALLERS = Path(__file__).with_name("callers-on-nodes.yaml")
NAME = "hunyuan-ocr"
SERVER = f"app.kubernetes.io/instance={NAME},app.kubernetes.io/component=server"
# Two engines that start at once on two cores take this long at the worst.
START_S = 420.0
NO_SETS: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Release:
    """The chart installed in a namespace with `values`, the later ones before the earlier."""

    namespace: Namespace
    values: tuple[Path, ...] = (CPU_TRIAL,)

    def install(self, sets: Mapping[str, object] = NO_SETS) -> None:
        """`helm install --wait`. Raises CommandFailed when it is not ready in time."""
        self._helm("install", sets, *waiting(START_S))

    def begin_install(self, sets: Mapping[str, object] = NO_SETS) -> str:
        """`helm install` that does not wait; its notes."""
        return self._helm("install", sets)

    def upgrade(self, sets: Mapping[str, object] = NO_SETS, within_s: float = START_S) -> None:
        """`helm upgrade --wait`, from the chart's values anew."""
        self._helm("upgrade", sets, *waiting(within_s))

    def change(self, sets: Mapping[str, object]) -> None:
        """`helm upgrade --wait` of some values; the others stay as they were set."""
        words = ("upgrade", NAME, str(CHART), "--reuse-values", *_given(sets), *waiting(START_S))
        self.namespace.helm(*words, timeout_s=START_S + 10)

    def rollback(self) -> None:
        self.namespace.helm("rollback", NAME, *waiting(START_S), timeout_s=START_S + 10)

    def uninstall(self) -> None:
        self.namespace.helm("uninstall", NAME, "--wait", "--timeout", "120s")

    def test(self) -> str:
        """`helm test`; what its pod said."""
        return self.namespace.helm("test", NAME, "--logs", "--timeout", "180s")

    def _helm(self, verb: str, sets: Mapping[str, object], *options: str) -> str:
        files = [word for path in (CALLERS, *self.values) for word in ("--values", str(path))]
        words = (verb, NAME, str(CHART), *files, *_given(sets), *options)
        return self.namespace.helm(*words, timeout_s=START_S + 10)

    def read(self) -> str:
        """A page's text, from the Service. Raises HTTPError."""
        request = Request(
            self.url + "/ocr", next(invoices(1, seed=1)).png, {"Content-Type": "image/png"}
        )
        with urlopen(request, timeout=70) as answer:
            return str(json.load(answer)["text"])

    @property
    def url(self) -> str:
        """The Service's address, as callers on a node reach it."""
        address = self.namespace.get("service", NAME)["spec"]["clusterIP"]
        return f"http://{address}:7860"

    def pods(self) -> list[dict[str, Any]]:
        """The pods, oldest first; those that are ending are among them."""
        return self.namespace.pods(SERVER)

    def ready(self, count: int) -> bool:
        """Whether there are just so many pods, none of them ending, all of them ready."""
        pods = self.pods()
        ending = any("deletionTimestamp" in pod["metadata"] for pod in pods)
        return not ending and sum(is_true(pod, "Ready") for pod in pods) == count == len(pods)

    def wait_until_ready(self, count: int) -> float:
        """Seconds until `ready`, and callers are led to a pod: nodes hear of it a little later."""
        began = time.monotonic()
        self.namespace.wait_for(f"{count} pods ready", lambda: self.ready(count), START_S)
        if count:
            self.namespace.wait_for("the Service leads somewhere", self._accepts, 10)
        return time.monotonic() - began

    def _accepts(self) -> bool:
        parts = urlsplit(self.url)
        try:
            with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=2):
                return True
        except OSError:
            return False

    def readiness(self, pod: Mapping[str, Any]) -> str:
        """What the pod's /readyz says, whatever its status."""
        return self.namespace.exec(
            pod["metadata"]["name"], "python3", "-c", _ASK_READYZ, container=NAME
        )


@contextmanager
def two_replicas(namespace: Namespace, sets: Mapping[str, object] = NO_SETS) -> Iterator[Release]:
    """Each pod has its own card, and each node one to spare for what a drained node gives up."""
    release = Release(namespace, PRETENDED_4090_D)
    with cards(n1=2, n2=2):
        release.install({**sets, "replicas": 2})
        yield release


_ASK_READYZ = (
    "import http.client as h; c = h.HTTPConnection('127.0.0.1', 9180, timeout=10);"
    "c.request('GET', '/readyz'); print(c.getresponse().read().decode())"
)


def container(pod: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The status of a container, be it a native sidecar."""
    status = pod["status"]
    statuses = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return next(found for found in statuses if found["name"] == name)


def restarts(pod: Mapping[str, Any]) -> dict[str, int]:
    """How often the service's and vLLM's container were restarted."""
    return {name: int(container(pod, name)["restartCount"]) for name in (NAME, "vllm")}


def signal_process(pod: Mapping[str, Any], words: str, signum: signal.Signals) -> None:
    """Send a signal to the pod's one process whose command line holds `words`.

    From outside of the container, where even its first process can be killed.
    """
    uid = pod["metadata"]["uid"]
    found = [
        pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is(pid, uid, words)
    ]
    assert len(found) == 1, (words, found)
    os.kill(found[0], signum)


def _is(pid: int, uid: str, words: str) -> bool:
    process = Path(f"/proc/{pid}")
    try:
        command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return words in command and uid in (process / "cgroup").read_text()
    except OSError:
        return False


def _given(sets: Mapping[str, object]) -> list[str]:
    return [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]


def waiting(within_s: float) -> tuple[str, ...]:
    return ("--wait", "--timeout", f"{within_s:.0f}s")
