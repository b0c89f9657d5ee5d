"""Two replicas under a steady load: nothing is lost while pods come and go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.events import Noticed, node_drain, noticed, pod_delete, rolling_upgrade
from tests.cluster.kube import Cluster, Namespace
from tests.cluster.nodes import cards, uncordoned_afterwards
from tests.cluster.release import PRETENDED_4090_D, Release

REPLICAS = 2


@pytest.fixture
def release(cluster: Cluster, namespace: Namespace) -> Iterator[Release]:
    """Two pods, and a card to spare for the one that a drained node gives up."""
    release = Release(namespace, (PRETENDED_4090_D,))
    with cards(n1=2, n2=1):
        release.install({"replicas": REPLICAS})
        yield release


def test_no_page_is_lost_when_pods_leave(cluster: Cluster, release: Release) -> None:
    """One release for all, since two real engines take minutes to start."""
    names = {pod["metadata"]["name"] for pod in release.pods()}
    upgraded = noticed("rolling upgrade", release, lambda: rolling_upgrade(release), REPLICAS)
    _assert_nothing_lost(upgraded)
    assert names.isdisjoint(pod["metadata"]["name"] for pod in release.pods())

    _assert_nothing_lost(noticed("pod delete", release, lambda: pod_delete(release), REPLICAS))

    with uncordoned_afterwards(cluster, "n2"):
        drained = noticed("node drain", release, lambda: node_drain(cluster, "n2"), REPLICAS)
        _assert_nothing_lost(drained)
        assert {pod["spec"]["nodeName"] for pod in release.pods()} == {"n1"}


def _assert_nothing_lost(noticed: Noticed) -> None:
    assert noticed.totals.lost == 0, noticed
    assert noticed.totals.answered > noticed.totals.refused, noticed
    # Callers that keep their connections were told to leave the pod that ended.
    assert noticed.asked_to_leave > 0, noticed
