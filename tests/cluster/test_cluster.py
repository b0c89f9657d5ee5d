"""The cluster itself: what every other test here builds on."""

from __future__ import annotations

import base64
import urllib.request
from pathlib import Path
from typing import Any

from tests.cluster.kube import Cluster, Namespace, is_true

INVOICE = Path(__file__).resolve().parents[2] / "examples" / "invoice.png"
IMAGE = "localhost/hunyuan-ocr:dev"


def pod(name: str, **container: Any) -> dict[str, Any]:
    """A pod under the strictest rules; its image starts as `container` says."""
    security = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    main = {"name": "main", "image": IMAGE, "securityContext": security,
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [main | container],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


def sleeper(name: str, **container: Any) -> dict[str, Any]:
    return pod(name, command=["python", "-c", "import time; time.sleep(3600)"], **container)


def test_the_service_image_reads_a_page_with_a_read_only_root(namespace: Namespace) -> None:
    probe = {"httpGet": {"path": "/readyz", "port": 9180}, "periodSeconds": 1}
    namespace.apply(pod("service", readinessProbe=probe))
    namespace.wait_until_ready("app=service")
    address = namespace.pods("app=service")[0]["status"]["podIP"]
    body = b'{"image": "%s"}' % base64.b64encode(INVOICE.read_bytes())
    request = urllib.request.Request(
        f"http://{address}:7860/ocr", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert b"INVOICE 2026-0417" in answer.read()


def test_a_gpu_is_given_to_one_pod_only(cluster: Cluster, namespace: Namespace) -> None:
    one = {"limits": {"nvidia.com/gpu": 1}}
    names = [f"gpu-{number}" for number in range(len(cluster.nodes()) + 1)]
    namespace.apply(*(sleeper(name, resources=one) for name in names))

    def refused() -> list[str]:
        messages = [
            condition.get("message", "")
            for found in namespace.pods()
            for condition in found["status"].get("conditions", [])
            if condition["type"] == "PodScheduled" and condition["status"] == "False"
        ]
        return [message for message in messages if "Insufficient nvidia.com/gpu" in message]

    assert len(namespace.wait_for("one pod is left without a card", refused)) == 1
    running = namespace.wait_for(
        "the others run", lambda: [found for found in namespace.pods() if is_true(found, "Ready")]
    )
    nodes = [found["spec"]["nodeName"] for found in running]
    assert len(set(nodes)) == len(nodes)


def test_a_network_policy_is_enforced(namespace: Namespace) -> None:
    serve = ["python", "-m", "http.server", "8080", "--directory", "/tmp"]
    namespace.apply(
        pod("web", command=serve, readinessProbe={"tcpSocket": {"port": 8080}, "periodSeconds": 1}),
        sleeper("friend"),
        sleeper("stranger"),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
        },
    )
    for app in ("web", "friend", "stranger"):
        namespace.wait_until_ready(f"app={app}")

    def answer(client: str) -> str:
        fetch = "import urllib.request as r; print(r.urlopen('http://web/', timeout=3).status)"
        either = f"try:\n {fetch}\nexcept OSError: print('refused')"
        return namespace.exec(client, "python", "-c", either).strip()

    namespace.wait_for("everybody is let in", lambda: answer("stranger") == "200")
    friends = {"podSelector": {"matchLabels": {"app": "friend"}}}
    rules = {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [friends]}]}
    namespace.apply(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "web"},
            "spec": rules,
        }
    )
    namespace.wait_for("the stranger is refused", lambda: answer("stranger") == "refused")
    assert answer("friend") == "200"
