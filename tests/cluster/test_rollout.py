"""Two replicas under a steady load: nothing is lost while pods come and go."""

from __future__ import annotations

from typing import Any

from tests.cluster.events import rollout_events
from tests.cluster.kube import Namespace
from tests.cluster.release import two_replicas


def test_no_page_is_lost_when_pods_leave(namespace: Namespace) -> None:
    """One release for all events, since two real engines take minutes to start."""
    with two_replicas(namespace) as release:
        pods = _names(release.pods())
        happened = []
        for noticed in rollout_events(release):
            assert noticed.totals.lost == 0, noticed
            assert noticed.totals.answered > noticed.totals.refused, noticed
            # Callers that keep their connections were told to leave the pod that ended.
            assert noticed.asked_to_leave > 0, noticed
            happened.append(noticed.event)
            assert _names(release.pods()) != pods, noticed
            pods = _names(release.pods())
    assert happened == ["rolling upgrade", "pod delete", "node drain"]


def _names(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}
