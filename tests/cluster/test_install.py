"""`helm install` on a real cluster: where the pod goes, what it reads, what it leaves behind."""

from __future__ import annotations

import pytest

from tests.cluster.kube import Cluster, CommandFailed, Namespace
from tests.cluster.nodes import labelled
from tests.cluster.release import NAME, PRETENDED_4090_D, Release

PRODUCT = "nvidia.com/gpu.product"


def test_the_pod_goes_where_a_4090_d_is_free(cluster: Cluster, namespace: Namespace) -> None:
    """Of two nodes with a card, only one has the right one."""
    release = Release(namespace, (PRETENDED_4090_D,))
    with labelled(cluster, "n1", PRODUCT, "NVIDIA-H200"):
        release.install()
        (pod,) = release.pods()
        assert pod["spec"]["nodeName"] == "n2"
        said = release.test()
        assert "INVOICE" in said or "Invoice" in said, said

        # A second pod finds no free card, and everybody is told why.
        notes = release.namespace.helm("get", "notes", NAME)
        assert "missing" not in notes
        release.namespace.kubectl("scale", f"deployment/{NAME}", "--replicas=2")
        assert "Insufficient nvidia.com/gpu" in _unschedulable(namespace)


def test_without_a_4090_d_it_stays_pending_and_says_why(
    cluster: Cluster, namespace: Namespace
) -> None:
    release = Release(namespace, (PRETENDED_4090_D,))
    with (
        labelled(cluster, "n1", PRODUCT, "NVIDIA-H200"),
        labelled(cluster, "n2", PRODUCT, "NVIDIA-GeForce-RTX-4090"),
    ):
        notes = release.begin_install()
        assert "NVIDIA-GeForce-RTX-4090-D" in notes
        assert "didn't match Pod's node affinity" in _unschedulable(namespace)
        with pytest.raises(CommandFailed, match=r"deadline|timed out"):
            release.upgrade({"podAnnotations.again": "yes"}, within_s=5)


def test_upgrade_rollback_and_uninstall_leave_nothing_behind(namespace: Namespace) -> None:
    before = _everything(namespace)
    release = Release(namespace)
    release.install()
    first = _settings(release)
    release.upgrade({"sidecar.settings.MAX_PAGES": 7})
    assert _settings(release) == first | {"HYOCR_MAX_PAGES": "7"}
    release.rollback()
    assert _settings(release) == first
    release.test()
    release.uninstall()
    assert _everything(namespace) == before


def _unschedulable(namespace: Namespace) -> str:
    """Why the scheduler leaves a pod pending, as `kubectl describe` shows it."""

    def event() -> str:
        events = namespace.get("events", "--field-selector=reason=FailedScheduling")["items"]
        return str(events[-1]["message"]) if events else ""

    return namespace.wait_for("the scheduler says why", event)


def _settings(release: Release) -> dict[str, str]:
    (pod,) = release.pods()
    containers = {found["name"]: found for found in pod["spec"]["initContainers"]}
    return {entry["name"]: entry["value"] for entry in containers[NAME]["env"]}


def _everything(namespace: Namespace) -> set[str]:
    """Names of all objects of the namespace but its events."""
    kinds = namespace.cluster.kubectl(
        "api-resources", "--namespaced", "--verbs=list", "--output=name"
    ).split()
    listed = [kind for kind in kinds if not kind.startswith("events")]
    found = namespace.kubectl("get", ",".join(listed), "--output=name", "--ignore-not-found")
    return set(found.split())
