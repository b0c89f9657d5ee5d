"""Two replicas under a steady load: nothing is lost while pods come and go."""

from __future__ import annotations

from itertools import pairwise

from tests.cluster.events import all_noticed, rollout_events
from tests.cluster.kube import Namespace
from tests.cluster.release import Release, two_replicas


def test_no_page_is_lost_when_pods_leave(namespace: Namespace) -> None:
    """One release for all events, since two real engines take minutes to start."""
    with two_replicas(namespace) as release:
        pods = [_names(release)]
        for noticed in all_noticed(
            release, rollout_events(release), lambda _: pods.append(_names(release))
        ):
            assert noticed.totals.lost == 0, noticed
            assert noticed.totals.answered > noticed.totals.refused, noticed
            # Callers that keep their connections were told to leave the pod that ended.
            assert noticed.asked_to_leave > 0, noticed
    assert len(pods) == 4
    assert all(before != after for before, after in pairwise(pods)), pods


def _names(release: Release) -> set[str]:
    return {pod["metadata"]["name"] for pod in release.pods()}
