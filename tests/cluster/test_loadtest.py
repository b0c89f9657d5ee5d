"""The chart's load test: where its Job runs, whom it reaches, what it leaves to be read."""

from __future__ import annotations

from typing import Any

import pytest

from hunyuan_ocr.api.keys import new_key
from loadtest import results
from tests.cluster.kube import Cluster, Namespace
from tests.cluster.nodes import without_label
from tests.cluster.release import EMBEDDED, Release

pytestmark = pytest.mark.long

JOB = "app.kubernetes.io/component=loadtest"


def test_the_job_loads_the_service_from_a_node_without_a_card(
    cluster: Cluster, namespace: Namespace
) -> None:
    key, line = new_key("tester")
    namespace.kubectl("create", "secret", "generic", "caller", f"--from-literal=key={key}")
    release = Release(namespace, (EMBEDDED,))
    with without_label(cluster, "n2", "nvidia.com/gpu.product"):
        release.install(
            {
                "keys.entries[0]": line,
                "test.keySecret.name": "caller",
                "loadtest.enabled": True,
                "loadtest.command": "run",
                "loadtest.args": "{--concurrency=2,--seconds=10,--warm-up=2}",
                # There is nothing to spare here for a core of its own.
                "loadtest.resources.requests.cpu": "100m",
            }
        )
        (pod,) = namespace.wait_for("the Job has ended", lambda: _ended(namespace), 180)
    assert pod["status"]["phase"] == "Succeeded", namespace.logs(pod["metadata"]["name"])
    assert pod["spec"]["nodeName"] == "n2"
    log = namespace.logs(pod["metadata"]["name"])
    (step,) = results.from_json(log.splitlines()[-1]).findings.steps
    assert step.answered_per_s > 0
    assert step.failed_share == 0


def _ended(namespace: Namespace) -> list[dict[str, Any]]:
    return [pod for pod in namespace.pods(JOB) if pod["status"]["phase"] in ("Succeeded", "Failed")]
