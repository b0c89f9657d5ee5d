"""A real cluster of namespaces on this machine, for where there is no Docker."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from scripts.cluster import binaries, nodes, pki, store
from scripts.cluster.machine import MachineError, cache, require_programs, require_root
from scripts.cluster.nodes import Node, Setup
from scripts.cluster.options import Options, set_gpus
from scripts.images import base, buildah

HERE = Path(__file__).resolve().parent
FOLDER = cache("cluster") / "run"
STORE = cache("cluster") / "store"
PACKAGES = {
    "containerd": "containerd", "runc": "runc", "iptables": "iptables", "conntrack": "conntrack",
    "socat": "socat", "ethtool": "ethtool", "ebtables": "ebtables", "ipset": "ipset",
    "modprobe": "kmod", "nft": "nftables", "/usr/lib/cni/bridge": "containernetworking-plugins",
    "ip": "iproute2", "nsenter": "util-linux", "openssl": "openssl", "curl": "curl", "gcc": "gcc",
    "/usr/include/stdio.h": "libc6-dev",
}  # fmt: skip
CONTROL_PLANE = Node(1)
START_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """What is running, as its record tells. `complete` is False while or after a broken start."""

    node_count: int
    binaries: str
    network_policy: bool
    complete: bool

    @property
    def nodes(self) -> list[Node]:
        return [Node(number) for number in range(1, self.node_count + 1)]

    @property
    def setup(self) -> Setup:
        return Setup(FOLDER, Path(self.binaries), self.network_policy)

    def save(self) -> None:
        draft = FOLDER / "cluster.draft"
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(FOLDER / "cluster.json")


def running() -> Cluster | None:
    """None when nothing at all is there.

    Raises:
        MachineError: the leavings of an interrupted start.
    """
    if not nodes.existing():
        return None
    record = FOLDER / "cluster.json"
    cluster = Cluster(**json.loads(record.read_text())) if record.exists() else None
    if cluster is None or not cluster.complete:
        raise MachineError("a start was interrupted: run `make cluster-down` first")
    return cluster


def up(options: Options, report: Callable[[str], None]) -> None:
    """Bring the cluster up and wait until every node is Ready and names resolve."""
    _require()
    with _lock():
        if (cluster := running()) is not None:
            report(f"already running with {cluster.node_count} nodes:")
            print(status(), end="")
            return
        shutil.rmtree(FOLDER, ignore_errors=True)  # a machine that was restarted leaves its files
        _start(options, report)


def _start(options: Options, report: Callable[[str], None]) -> None:
    programs = ["hyperkube", "etcd", "coredns"] + ["kube-router"] * options.network_policy
    folder = binaries.provide(programs, cache("cluster"), options.archives)
    store.provide(STORE, [_program_image(name, folder) for name in ("pause", "coredns")])
    report("programs and images are there")
    cluster = Cluster(options.nodes, str(folder), options.network_policy, complete=False)
    leaves = [*pki.control_plane(CONTROL_PLANE.address)]
    leaves += [pki.node(node.name, node.address) for node in cluster.nodes]
    pki.write(FOLDER / "pki", leaves, f"https://{CONTROL_PLANE.address}:6443")
    nodes.connect(cluster.nodes)
    cluster.save()
    for node in cluster.nodes:
        store.copy(STORE, FOLDER / node.name)
        nodes.start(node, cluster.setup)
    _await("the API server", _kubectl("get", "--raw", "/readyz"))
    report("the API server answers")
    kubectl("apply", "-f", str(HERE / "coredns.yaml"))
    for node in cluster.nodes:
        _await(f"node {node.name}", _kubectl("get", "node", node.name))
        kubectl("wait", "--for=condition=Ready", f"node/{node.name}", "--timeout=90s")
        set_gpus(kubectl, node.name, options.gpus.get(node.name, 0), taint=options.gpu_taint)
    report("nodes are Ready")
    kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=90s")
    replace(cluster, complete=True).save()
    report("names resolve")


def down() -> None:
    """End everything and leave nothing, whatever state it is in."""
    require_root("ending the cluster")
    with _lock():
        networks = nodes.existing()
        remove = partial(shutil.rmtree, ignore_errors=True)
        with ThreadPoolExecutor() as pool:
            list(pool.map(nodes.kill, networks))
            for network in networks:
                nodes.disconnect(network)
            # Most of the time goes here: a node has a link to every file of its images, 100 000.
            list(pool.map(remove, FOLDER.glob("n*")))
        remove(FOLDER)


def status() -> str:
    """The nodes, as kubectl tells them."""
    _complete()
    return kubectl("get", "nodes", "-o", "wide")


def load(archives: list[Path]) -> None:
    """Import image archives for the next start, and into every node that runs now."""
    _require()
    with _lock():
        store.provide(STORE, archives)
        cluster = running()

    def into(node: Node) -> None:
        folder = FOLDER / node.name
        store.load(folder, folder / "containerd.sock", archives)

    if cluster is not None:
        with ThreadPoolExecutor(len(cluster.nodes)) as pool:
            list(pool.map(into, cluster.nodes))


def program_images(programs: Sequence[str], archives: Path) -> list[Path]:
    """An archive to `load` for each of `programs`, named localhost/PROGRAM:dev."""
    folder = binaries.provide(programs, cache("cluster"), archives)
    # Prepared ones want a C library.
    return [_program_image(name, folder, base.provide()) for name in programs]


def stop_node(name: str) -> None:
    """A power cut of one node; its disk stays."""
    cluster = _complete()
    node = _node(cluster, name)
    nodes.kill(node.network)
    nodes.forget_runtime(node, cluster.setup)


def start_node(name: str) -> None:
    """Switch a stopped node on again and wait until it is Ready."""
    cluster = _complete()
    node = _node(cluster, name)
    if nodes.alive(node.network):
        raise MachineError(f"{name} is running")
    nodes.start(node, cluster.setup)
    kubectl("wait", "--for=condition=Ready", f"node/{name}", "--timeout=90s")


def command(words: list[str]) -> list[str]:
    """`words` as they run in the cluster's network."""
    return [*nodes.inside(CONTROL_PLANE), *words]


def network() -> Path:
    """The network namespace in which pods and services have their addresses."""
    return Path("/run/netns", CONTROL_PLANE.network)


def variables() -> dict[str, str]:
    """The environment in which kubectl is found and finds the cluster."""
    path = f"{_complete().binaries}:{os.environ['PATH']}"
    return {"KUBECONFIG": str(FOLDER / "pki" / "admin.kubeconfig"), "PATH": path}


def kubectl(*arguments: str) -> str:
    """Run kubectl as the administrator; its output.

    Raises:
        MachineError: it failed; the message is kubectl's.
    """
    done = subprocess.run(_kubectl(*arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _complete() -> Cluster:
    cluster = running()
    if cluster is None:
        raise MachineError("no cluster is running: run `make cluster-up` first")
    return cluster


def _node(cluster: Cluster, name: str) -> Node:
    found = next((node for node in cluster.nodes if node.name == name), None)
    if found is None:
        raise MachineError(f"there is no node {name}")
    return found


def _kubectl(*arguments: str) -> list[str]:
    record = json.loads((FOLDER / "cluster.json").read_text())
    config = f"--kubeconfig={FOLDER / 'pki' / 'admin.kubeconfig'}"
    return command([f"{record['binaries']}/kubectl", config, *arguments])


def _program_image(program: str, folder: Path, below: str = "scratch") -> Path:
    """An archive with one of the cluster's own programs as an image, made once."""
    programs = HERE / "programs"
    made_of = (programs / "Dockerfile").read_bytes() + below.encode()
    archive = folder / f"{program}-{hashlib.sha256(made_of).hexdigest()[:12]}.tar"
    if not archive.exists():
        if program == "pause":
            source = str(programs / "pause.c")
            compiler = ("gcc", "-Os", "-static", "-s", "-o", str(folder / "pause"), source)
            subprocess.run(compiler, check=True)
        name = f"localhost/{program}:dev"
        options = ("--build-arg", f"PROGRAM={program}", "--build-arg", f"BASE={below}")
        buildah.build(name, folder, programs / "Dockerfile", *options)
        buildah.save(name, archive)
    return archive


def _require() -> None:
    require_root("a cluster without Docker")
    _require_cgroups()
    require_programs(PACKAGES | buildah.PACKAGES)


def _require_cgroups() -> None:
    if not (nodes.CGROUPS / "cpuset").is_dir():
        raise MachineError("this machine has cgroup v2 only: install Docker and kind")


def _await(what: str, words: list[str]) -> None:
    """Wait until a command succeeds."""
    deadline = time.monotonic() + START_WITHIN_S
    while subprocess.run(words, capture_output=True, check=False).returncode:
        if not nodes.alive(CONTROL_PLANE.network) or time.monotonic() > deadline:
            raise MachineError(f"{what} does not come up: see {FOLDER}/n*/log")
        time.sleep(0.2)


@contextmanager
def _lock() -> Iterator[None]:
    """One start or end at a time; the kernel lets go when the holder dies."""
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with (FOLDER.parent / ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another start or end is under way; waiting for it", file=sys.stderr)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
