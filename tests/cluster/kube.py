"""A cluster as the tests use it: kubectl and helm with clear errors, and waiting that explains."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import pytest

POLL_S = 0.25
CLONE_NEWNET = 0x40000000

T = TypeVar("T")


class CommandFailed(Exception):
    """kubectl or helm said no; the message is its own."""


@contextmanager
def joined(network: Path | None) -> Iterator[None]:
    """This thread, and what it starts, in a network namespace: it can dial the addresses of pods
    and services, and pods reach a server that a test starts at the control plane's address.

    Raises OSError without the right to do so. None is the network as it is.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(handle: IO[str]) -> None:
        if libc.setns(handle.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot join {handle.name}")

    if network is None:
        yield
        return
    with Path("/proc/thread-self/ns/net").open() as before, network.open() as there:
        enter(there)
        try:
            yield
        finally:
            enter(before)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster. `variables` make kubectl and helm find it; `helm` is the program."""

    helm_program: Path
    variables: Mapping[str, str]

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 120) -> str:
        """kubectl's output. Raises CommandFailed."""
        return self._run(("kubectl", *arguments), stdin, timeout_s)

    def helm(self, *arguments: str, timeout_s: float = 300) -> str:
        """helm's output. Raises CommandFailed."""
        return self._run((str(self.helm_program), *arguments), None, timeout_s)

    def get(self, *arguments: str) -> Any:
        """The object or list that `kubectl get` finds. Raises CommandFailed."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def nodes(self, *, ready: bool = True) -> list[str]:
        """Names of the nodes, in order; of the Ready ones unless `ready` is False."""
        return sorted(
            node["metadata"]["name"]
            for node in self.get("nodes")["items"]
            if not ready or is_true(node, "Ready")
        )

    def _run(self, words: tuple[str, ...], stdin: str | None, timeout_s: float) -> str:
        try:
            done = subprocess.run(
                words, input=stdin, capture_output=True, text=True, timeout=timeout_s,
                env=os.environ | self.variables, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CommandFailed(f"{' '.join(words)}: no end after {timeout_s:.0f} s") from None
        if done.returncode:
            raise CommandFailed(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout


@dataclass(frozen=True, slots=True)
class Namespace:
    """One test's own part of the cluster."""

    cluster: Cluster
    name: str

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 120) -> str:
        return self.cluster.kubectl("-n", self.name, *arguments, stdin=stdin, timeout_s=timeout_s)

    def helm(self, *arguments: str, timeout_s: float = 300) -> str:
        return self.cluster.helm("-n", self.name, *arguments, timeout_s=timeout_s)

    def get(self, *arguments: str) -> Any:
        return self.cluster.get("-n", self.name, *arguments)

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": manifests}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(items))

    def pods(self, selector: str = "") -> list[dict[str, Any]]:
        """Pods that match a label selector, oldest first; those being deleted are among them."""
        found = self.get("pods", "-l", selector)["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def exec(self, pod: str, *command: str, container: str = "", stdin: str | None = None) -> str:
        where = (*(("-c", container) if container else ()), *(("-i",) if stdin else ()))
        return self.kubectl("exec", pod, *where, "--", *command, stdin=stdin)

    def logs(self, pod: str, container: str = "", *, previous: bool = False) -> str:
        where = ("-c", container) if container else ("--all-containers",)
        return self.kubectl("logs", pod, *where, *(("--previous",) if previous else ()))

    def wait_for(self, what: str, condition: Callable[[], T], within_s: float = 60) -> T:
        """What `condition` gives as soon as that is true; a kubectl error counts as not yet.

        Fails the test, telling the state of the namespace, when it is not true in time.
        """
        deadline, last = time.monotonic() + within_s, ""
        while time.monotonic() < deadline:
            try:
                if answer := condition():
                    return answer
            except CommandFailed as error:
                last = str(error)
            time.sleep(POLL_S)
        pytest.fail(f"not within {within_s:.0f} s: {what}\n{last}\n{self.describe()}", False)

    def wait_until_ready(self, selector: str, count: int = 1, within_s: float = 120) -> None:
        def ready() -> bool:
            return sum(is_true(pod, "Ready") for pod in self.pods(selector)) == count

        self.wait_for(f"{count} pods of {selector} are Ready", ready, within_s)

    def describe(self) -> str:
        """Pods and events, for the reader of a failed test."""
        events = ("get", "events", "--sort-by=.lastTimestamp")
        return self.kubectl("get", "pods", "-o", "wide") + "\n" + self.kubectl(*events)

    def delete(self) -> None:
        """End its pods without their grace, then the rest, and wait until all is gone."""
        # First who would start others in their place, which would have all of their grace.
        orphaning = ("--all", "--cascade=orphan", "--wait=false")
        self.kubectl("delete", "deployments,replicasets,jobs", *orphaning)
        self.kubectl("delete", "pods", "--all", "--grace-period=1", "--wait=false")
        self.cluster.kubectl("delete", "namespace", self.name, "--timeout=120s", timeout_s=130)


def is_true(thing: Mapping[str, Any], condition: str) -> bool:
    """Whether a node or a pod has that condition."""
    conditions = thing["status"].get("conditions", [])
    return any(found["type"] == condition and found["status"] == "True" for found in conditions)
