"""Nodes on one machine: each is a set of namespaces, joined by a switch that leads nowhere else.

Everything that exists is found by its name or in its network namespace, never from a record of
what was started, so an interrupted start can be cleared away like a complete one.
"""

from __future__ import annotations

import os
import shutil
import signal
import string
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

TEMPLATES = Path(__file__).with_name("node")
PREFIX = "hyocr-"
SWITCH = f"{PREFIX}switch"
CGROUPS = Path("/sys/fs/cgroup")
END_WITHIN_S = 20.0


class NodeError(Exception):
    """A node did not do what it was told in time."""


@dataclass(frozen=True, slots=True)
class Node:
    """Number 1 is the control plane, which takes pods like every other node."""

    number: int

    @property
    def name(self) -> str:
        return f"n{self.number}"

    @property
    def network(self) -> str:
        """Name of its network namespace and of its cgroup."""
        return PREFIX + self.name

    @property
    def address(self) -> str:
        return f"10.250.0.{10 + self.number}"

    @property
    def pods(self) -> str:
        return f"10.244.{self.number}.0/24"


@dataclass(frozen=True, slots=True)
class Setup:
    """What a node is started from. `folder` gets a folder for each node; `binaries` is on PATH."""

    folder: Path
    binaries: Path
    network_policy: bool


def connect(nodes: list[Node]) -> None:
    """Make the switch and every node's network namespace with a leg in it."""
    _ip("netns", "add", SWITCH)
    _ip("-n", SWITCH, "link", "add", "bridge", "type", "bridge")
    _ip("-n", SWITCH, "link", "set", "bridge", "up")
    for node in nodes:
        _ip("netns", "add", node.network)
        _ip("-n", node.network, "link", "add", "eth0", "type", "veth",
            "peer", "name", node.name, "netns", SWITCH)  # fmt: skip
        _ip("-n", SWITCH, "link", "set", node.name, "master", "bridge", "up")
        _ip("-n", node.network, "address", "add", f"{node.address}/24", "dev", "eth0")
        _ip("-n", node.network, "link", "set", "eth0", "up")
        # kube-proxy's rules see a packet only if there is a route; this one leads to nobody.
        _ip("-n", node.network, "route", "add", "default", "via", "10.250.0.1")
        for other in nodes:
            if other != node:
                _ip("-n", node.network, "route", "add", other.pods, "via", other.address)


def start(node: Node, setup: Setup) -> None:
    """Start the node's PID 1, detached; its logs lie in its folder."""
    state, pki = setup.folder / node.name, setup.folder / "pki"
    (state / "log").mkdir(parents=True, exist_ok=True)
    (state / "cni").mkdir(exist_ok=True)
    (state / "resolv.conf").write_text("nameserver 127.0.0.1\n")  # nobody answers there
    facts = {"node": node.name, "cgroup": node.network, "pods": node.pods,
             "state": str(state), "pki": str(pki)}  # fmt: skip
    for template in TEMPLATES.glob("*.*"):
        folder = state / "cni" if template.suffix == ".conflist" else state
        if template.suffix != ".sh":
            text = string.Template(template.read_text()).substitute(facts)
            (folder / template.name).write_text(text)
    variables = {
        "NODE": node.name, "ADDRESS": node.address, "CGROUP": node.network,
        "STATE": str(state), "PKI": str(pki), "API": f"https://{Node(1).address}:6443",
        "CONTROL_PLANE": "1" if node.number == 1 else "",
        "NETPOL": "1" if setup.network_policy else "",
        "PATH": f"{setup.binaries}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }  # fmt: skip
    unshare = ("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child=KILL",
               "--mount-proc", "--propagation", "private")  # fmt: skip
    command = (*inside(node), *unshare, "bash", str(TEMPLATES / "node.sh"))
    with (state / "log" / "node.log").open("ab") as log:
        subprocess.Popen(
            command, env=variables, cwd="/", stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def inside(node: Node) -> tuple[str, ...]:
    """The words before a command that is to run in the node's network.

    `ip netns exec` would mount another /sys over the one with the cgroups.
    """
    return ("nsenter", f"--net=/run/netns/{node.network}")


def existing() -> list[str]:
    """Names of the network namespaces there are, the switch's included."""
    lines = _ip("netns", "list").splitlines()
    return sorted(name for line in lines if (name := line.split()[0]).startswith(PREFIX))


def alive(network: str) -> list[int]:
    """Processes of that node; not those of whoever has only joined its network, such as a test."""
    ours = os.readlink("/proc/self/ns/pid")
    found = []
    for word in _ip("netns", "pids", network).split():
        try:
            if os.readlink(f"/proc/{word}/ns/pid") != ours:
                found.append(int(word))
        except FileNotFoundError:  # it has just ended
            continue
    return found


def kill(network: str) -> None:
    """End all of a node at once, as a power cut would, and wait until it is gone.

    Raises:
        NodeError: processes outlive SIGKILL.
    """
    deadline = time.monotonic() + END_WITHIN_S
    while (processes := alive(network)) or _remove_cgroups(network):
        for process in processes:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            raise NodeError(f"{network}: these do not end: {processes}")
        time.sleep(0.05)


def forget_runtime(node: Node, setup: Setup) -> None:
    """Drop what lies in memory on a real node and so does not survive its power cut."""
    for name in ("containerd-state", "run-containerd"):
        shutil.rmtree(setup.folder / node.name / name, ignore_errors=True)


def disconnect(network: str) -> None:
    _ip("netns", "delete", network)


def _remove_cgroups(network: str) -> bool:
    """Try once; True when some are still in use."""
    roots = list(CGROUPS.glob(f"*/{network}"))
    for root in roots:
        for folder, _, _ in os.walk(root, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:  # busy until the kernel has buried the last process
                continue
    return any(root.exists() for root in roots)


def _ip(*arguments: str) -> str:
    return subprocess.run(("ip", *arguments), check=True, capture_output=True, text=True).stdout
