"""What tests change about nodes, and change back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.kube import Cluster
from tests.cluster.running import ROOT


@contextmanager
def labelled(cluster: Cluster, node: str, label: str, value: str) -> Iterator[None]:
    """The node with another value of a label that it has."""
    before = cluster.get("node", node)["metadata"]["labels"][label]
    cluster.kubectl("label", "node", node, "--overwrite", f"{label}={value}")
    try:
        yield
    finally:
        cluster.kubectl("label", "node", node, "--overwrite", f"{label}={before}")


@contextmanager
def without_label(cluster: Cluster, node: str, label: str) -> Iterator[None]:
    """The node without a label that it has."""
    before = cluster.get("node", node)["metadata"]["labels"][label]
    cluster.kubectl("label", "node", node, f"{label}-")
    try:
        yield
    finally:
        cluster.kubectl("label", "node", node, f"{label}={before}")


@contextmanager
def cards(**counts: int) -> Iterator[None]:
    """So many pretended cards on each node named; one on each again afterwards."""
    _set_cards(counts)
    try:
        yield
    finally:
        _set_cards(dict.fromkeys(counts, 1))


@contextmanager
def uncordoned_afterwards(cluster: Cluster, node: str) -> Iterator[None]:
    try:
        yield
    finally:
        cluster.kubectl("uncordon", node)


def _set_cards(counts: dict[str, int]) -> None:
    given = ",".join(f"{node}={count}" for node, count in counts.items())
    words = [sys.executable, "scripts/cluster/cluster.py", "gpu", given]
    subprocess.run(words, cwd=ROOT, check=True)
