"""What an auditor asks: who reaches the pods, whom they reach, whether values can be changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.chart import definitions
from tests.cluster.kube import Cluster, Namespace
from tests.cluster.release import CHART, EMBEDDED, NAME, Release
from tests.cluster.running import fresh_namespace
from tests.cluster.test_cluster import sleeper

pytestmark = pytest.mark.long

SCENARIOS = sorted((CHART / "ci").glob("*-values.yaml"))
NOTHING_GOES: dict[str, Any] = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "default-deny"},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
}
# For what the test itself starts.
CLIENTS_MAY_CALL: dict[str, Any] = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "clients"},
    "spec": {
        "podSelector": {"matchLabels": {"app": "client"}},
        "policyTypes": ["Egress"],
        "egress": [{}],
    },
}
_CONNECT = (
    "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()"
)


def test_in_a_namespace_that_denies_all_only_callers_get_in_and_nothing_gets_out(
    cluster: Cluster, namespace: Namespace
) -> None:
    namespace.apply(NOTHING_GOES, CLIENTS_MAY_CALL)
    release = Release(namespace, (EMBEDDED,))
    release.install()
    release.wait_until_ready(1)
    assert release.read().startswith("Invoice")
    assert "Invoice" in release.test()
    (server,) = release.pods()
    address = server["status"]["podIP"]
    with fresh_namespace(cluster, "strangers") as elsewhere:
        for where in (namespace, elsewhere):
            where.apply(sleeper("client"))
            where.wait_until_ready("app=client")
        assert _reaches(namespace, "client", address, 7860)
        assert not _reaches(namespace, "client", address, 9180)
        assert not _reaches(namespace, "client", address, 8000)
        assert not _reaches(elsewhere, "client", address, 7860)
        (client,) = elsewhere.pods("app=client")
        with _listener(elsewhere, client):
            assert _reaches(elsewhere, "client", client["status"]["podIP"], 8080)
            name = server["metadata"]["name"]
            assert not _reaches(namespace, name, client["status"]["podIP"], 8080)


def test_every_scenario_can_be_upgraded_to_and_left_again(
    cluster: Cluster, namespace: Namespace
) -> None:
    """Their images are nowhere, so it is the API's word on each change; the last one serves."""
    for path in sorted(definitions.provide().glob("*.yaml")):
        cluster.kubectl("apply", "--server-side", "-f", str(path))
    home = Release(namespace, (EMBEDDED,))
    home.install()
    for scenario in SCENARIOS:
        _upgrade(namespace, scenario)
        _upgrade(namespace, EMBEDDED)
    home.wait_until_ready(1)
    assert home.read().startswith("Invoice")


def _upgrade(namespace: Namespace, values: Path) -> None:
    namespace.helm("upgrade", NAME, str(CHART), "--values", str(values), "--history-max=2")
    assert "STATUS: deployed" in namespace.helm("status", NAME)


def _reaches(namespace: Namespace, pod: str, address: str, port: int) -> bool:
    command = f"python -c '{_CONNECT}' {address} {port} 2>/dev/null && echo yes || echo no"
    return namespace.exec(pod, "sh", "-c", command).strip() == "yes"


@contextmanager
def _listener(namespace: Namespace, pod: dict[str, Any]) -> Iterator[None]:
    """Something that anybody who is let out would reach."""
    name = pod["metadata"]["name"]
    serve = "python -m http.server 8080 --directory /tmp > /tmp/log 2>&1 & echo $! > /tmp/pid"
    namespace.exec(name, "sh", "-c", serve)
    try:
        yield
    finally:
        namespace.exec(name, "sh", "-c", "kill $(cat /tmp/pid)")
