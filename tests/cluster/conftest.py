"""A real cluster with the project's images, for the whole run; each test has its own namespace.

A cluster that runs already is used as it is and left running; else one is started, and ended.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.chart.tools import tool
from scripts.cluster.cluster import backend
from tests.cluster.kube import Cluster, Namespace, joined

ROOT = Path(__file__).resolve().parents[2]
IMAGES = (
    "hunyuan-ocr",
    "hunyuan-ocr-slim",
    "hunyuan-ocr-engine-cpu-0.28.0",
    "hunyuan-ocr-engine-cpu-0.32.0",
)
# Each node pretends to have a card; policies are enforced.
SHAPE = ("NODES=2", "GPU=n1=1,n2=1", "NETPOL=1")


def command(*words: str) -> str:
    """Run one of the project's commands; its output, or the end of the whole run."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}", returncode=1)
    return done.stdout


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes with every image of the project.

    The tests' own process joins the cluster's network, so it needs root, as the cluster does.
    """
    built = command(sys.executable, "scripts/images/images.py", "build", *IMAGES)
    archives = [line.split()[-1] for line in built.splitlines()]
    # Before the start: a node then begins with the images, where a running one must unpack them.
    command(sys.executable, "scripts/cluster/cluster.py", "load", *archives)
    started = "already" not in command("make", "--silent", "cluster-up", *SHAPE)
    helm = tool("helm")
    with joined(backend().network()):
        yield Cluster(helm, backend().variables())
    if started:
        command("make", "--silent", "cluster-down")


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace named after the test, deleted after it."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    namespace = Namespace(cluster, words.removeprefix("test-")[:50].rstrip("-"))
    cluster.kubectl("create", "namespace", namespace.name)
    yield namespace
    namespace.delete()
