"""Bringing up what tests and figures need: a cluster with the images, and namespaces in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.chart.tools import tool
from scripts.cluster import local
from scripts.cluster.cluster import backend
from scripts.images.images import ENGINES
from tests.cluster.kube import Cluster, Namespace, joined

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ("hunyuan-ocr", "hunyuan-ocr-slim", *ENGINES)
# Each node pretends to have a card; policies are enforced.
SHAPE = ("NODES=2", "GPU=n1=1,n2=1", "NETPOL=1")


class NotRunning(Exception):
    """One of the project's own commands failed; the message is what it said."""


@contextmanager
def running_cluster(programs: Sequence[str] = ()) -> Iterator[Cluster]:
    """Two nodes with every image of the project, and of `programs`; one that runs already is used
    and left.

    This process joins the cluster's network meanwhile, so it needs root, as the cluster does. That
    network leads nowhere else: what has to be fetched must be there before. Raises NotRunning.
    """
    built = _command(sys.executable, "scripts/images/images.py", "build", *IMAGES)
    archives = [line.split()[-1] for line in built.splitlines()]
    prepared = Path(os.environ.get("CLUSTER_CACHE") or ROOT / "absent")
    archives += map(str, local.program_images(programs, prepared))
    # Before the start: a node then begins with the images, where a running one must unpack them.
    _command(sys.executable, "scripts/cluster/cluster.py", "load", *archives)
    started = "already" not in _command("make", "--silent", "cluster-up", *SHAPE)
    try:
        with joined(backend().network()):
            yield Cluster(tool("helm"), backend().variables())
    finally:
        if started:
            _command("make", "--silent", "cluster-down")


@contextmanager
def fresh_namespace(cluster: Cluster, name: str) -> Iterator[Namespace]:
    """A namespace where only what the Pod Security Standards call restricted may run."""
    namespace = Namespace(cluster, name)
    cluster.kubectl("create", "namespace", name)
    try:
        enforce = "pod-security.kubernetes.io/enforce=restricted"
        cluster.kubectl("label", "namespace", name, enforce)
        yield namespace
    finally:
        namespace.delete()


def _command(*words: str) -> str:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotRunning(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout
