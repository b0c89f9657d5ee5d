"""The signals of pods that a kubelet runs: out of the Service while too hot, then back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hunyuan_ocr.cluster.api import CONDITION, ClusterApi, Pod
from hunyuan_ocr.cluster.signals import ClusterSignals
from hunyuan_ocr.sandbox import CREDENTIALS
from scripts.chart.render import CHART, manifests, only, template
from tests.cluster.kube import Namespace, is_true

NAME = "hunyuan-ocr"
REPLICAS = 3


@pytest.fixture
def pods(namespace: Namespace) -> Iterator[list[dict[str, Any]]]:
    """Pods of the chart's Deployment, with a container that does nothing instead of vLLM's."""
    options = [f"--namespace={namespace.name}", f"--set=replicas={REPLICAS}"]
    objects = manifests(template(CHART / "ci" / "signals-values.yaml", options=options))
    objects = [found for found in objects if found["kind"] != "Pod"]
    spec = only(objects, "Deployment")["spec"]["template"]["spec"]
    for part in ("initContainers", "affinity", "tolerations"):
        del spec[part]
    (container,) = spec["containers"]
    security = container["securityContext"]
    token = {"name": "token", "mountPath": str(CREDENTIALS), "readOnly": True}
    spec["containers"] = [
        {"name": "main", "image": "localhost/pause:dev", "securityContext": security,
         "volumeMounts": [token]}
    ]  # fmt: skip
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] == "token"]
    namespace.apply(*objects)
    selector = "app.kubernetes.io/component=server"
    running = namespace.wait_for("the pods run", lambda: running_pods(namespace, selector))
    yield running
    namespace.cluster.kubectl(
        "delete", "validatingadmissionpolicy,validatingadmissionpolicybinding",
        f"{NAME}-signals.{namespace.name}",
    )  # fmt: skip


def running_pods(namespace: Namespace, selector: str) -> list[dict[str, Any]]:
    found = [pod for pod in namespace.pods(selector) if is_true(pod, "ContainersReady")]
    return found if len(found) == REPLICAS else []


def signals_of(namespace: Namespace, pod: dict[str, Any], folder: Path) -> ClusterSignals:
    """Signals with a token like the pod's own."""
    metadata = pod["metadata"]
    mine = Pod(namespace.name, metadata["name"], metadata["uid"])
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={mine.name}",
             f"--bound-object-uid={mine.uid}")  # fmt: skip
    folder /= mine.name
    folder.mkdir()
    (folder / "token").write_text(namespace.kubectl("create", "token", NAME, *bound).strip())
    authority = namespace.get("configmap", "kube-root-ca.crt")["data"]["ca.crt"]
    (folder / "ca.crt").write_text(authority)
    (service,) = namespace.cluster.get("--namespace=default", "endpointslices")["items"]
    environment = {
        "KUBERNETES_SERVICE_HOST": service["endpoints"][0]["addresses"][0],
        "KUBERNETES_SERVICE_PORT": str(service["ports"][0]["port"]),
    }
    return ClusterSignals(
        lambda: ClusterApi(mine, folder, environment), deployment=NAME, max_unready_percent=40
    )


def serving(namespace: Namespace) -> set[str]:
    """Names of the pods to which the Service sends requests."""
    slices = namespace.get("endpointslices", "-l", f"kubernetes.io/service-name={NAME}")["items"]
    return {
        endpoint["targetRef"]["name"]
        for found in slices
        for endpoint in found["endpoints"] or ()
        if endpoint["conditions"]["ready"]
    }


async def test_a_pod_that_is_too_hot_leaves_the_service_and_comes_back(
    namespace: Namespace, pods: list[dict[str, Any]], tmp_path: Path
) -> None:
    names = {pod["metadata"]["name"] for pod in pods}
    assert serving(namespace) == set()  # nobody has said yet that they serve
    fleet = [signals_of(namespace, pod, tmp_path) for pod in pods]
    for signals in fleet:
        signals.start()
    namespace.wait_for("all serve", lambda: serving(namespace) == names)
    for signals in fleet:
        signals.tell("opened", {"thermal"})
    namespace.wait_for("one is out", lambda: len(serving(namespace)) == REPLICAS - 1)
    (out,) = names - serving(namespace)
    events = namespace.kubectl("describe", "pod", out)
    assert "BreakerOpened" in events
    assert f"{CONDITION}" in events
    for signals in fleet:
        signals.tell("half_open")
    namespace.wait_for("all serve", lambda: serving(namespace) == names)
    for signals in fleet:
        await signals.close()


def test_the_policy_has_no_warnings(namespace: Namespace, pods: list[dict[str, Any]]) -> None:
    """The controller checks its expressions against the types of the API."""

    def checked() -> Any:
        name = f"{NAME}-signals.{namespace.name}"
        policy = namespace.cluster.get("validatingadmissionpolicy", name)
        return policy["status"] if "typeChecking" in policy.get("status", {}) else None

    status = namespace.wait_for("its types are checked", checked)
    assert not status["typeChecking"].get("expressionWarnings"), json.dumps(status)
