"""Who reaches the pods, what they reach, and how many may be missing."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.chart.render import Manifest, containers, only
from tests.chart.conftest import Render, policy

NAMESPACE: list[dict[str, Any]] = [{"podSelector": {}}]
DNS = {(protocol, port) for protocol in ("UDP", "TCP") for port in (53, 5353)}


def let_in(documents: list[Manifest]) -> dict[int, list[dict[str, Any]]]:
    """Who may come to each port."""
    found: dict[int, list[dict[str, Any]]] = {}
    for rule in policy(documents)["ingress"]:
        for port in rule["ports"]:
            found.setdefault(port["port"], []).extend(rule["from"])
    return found


def let_out(documents: list[Manifest], component: str = "server") -> set[tuple[str, int]]:
    """What may be reached, at any address."""
    return {
        (port["protocol"], port["port"])
        for rule in policy(documents, component)["egress"]
        if "to" not in rule
        for port in rule["ports"]
    }


@pytest.mark.parametrize("case", ["rtx-4090-d", "cpu-trial", "embedded", "shared-claim"])
def test_callers_are_pods_of_the_namespace_and_nobody_reads_metrics(
    render: Render, case: str
) -> None:
    documents = render(case)
    assert let_in(documents) == {7860: NAMESPACE}
    assert policy(documents)["policyTypes"] == ["Ingress", "Egress"]
    labels = only(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy(documents)["podSelector"]["matchLabels"].items() <= labels.items()


def test_others_are_let_in_by_name(render: Render) -> None:
    def namespace(name: str) -> dict[str, Any]:
        return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}

    assert let_in(render("keda")) == {
        7860: [*NAMESPACE, namespace("ingress-nginx")],
        9180: [namespace("monitoring")],
    }


@pytest.mark.parametrize(
    ("case", "ports"),
    [
        ("cpu-trial", set()),  # the model is in the image
        ("embedded", set()),
        ("air-gapped", set()),
        ("shared-claim", set()),  # a Job fetches the model
        ("rtx-4090-d", {443}),  # the pod does
        ("keda", {443, 4318, 6379}),
        ("every-option", {6380, 26380}),
    ],
)
def test_pods_reach_dns_and_what_the_values_send_them_to(
    render: Render, case: str, ports: set[int]
) -> None:
    assert let_out(render(case)) == DNS | {("TCP", port) for port in ports}


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [
        ("http://collector:4318", 4318),
        ("https://collector.example.com", 443),
        ("http://collector/otlp", 80),
        ("http://[fd00::1]:4318", 4318),
    ],
)
def test_the_collectors_port_is_read_from_its_address(
    render: Render, endpoint: str, port: int
) -> None:
    documents = render("cpu-trial", {"sidecar": {"settings": {"OTLP_ENDPOINT": endpoint}}})
    assert let_out(documents) == DNS | {("TCP", port)}


@pytest.mark.parametrize(
    ("endpoint", "port"), [("http://mirror.local:8080", 8080), ("http://mirror.local", 80)]
)
@pytest.mark.parametrize(("case", "name"), [("rtx-4090-d", "server"), ("shared-claim", "model")])
def test_a_mirrors_port_is_read_from_its_address(
    render: Render, case: str, name: str, endpoint: str, port: int
) -> None:
    documents = render(case, {"model": {"download": {"endpoint": endpoint}}})
    assert ("TCP", port) in let_out(documents, name)
    assert {("UDP", 53), ("UDP", 5353)} <= let_out(documents, name)


def test_redis_port_is_read_from_its_address(render: Render) -> None:
    settings = {"REDIS_URL": "redis://cache:6390/1"}
    assert ("TCP", 6390) in let_out(render("cpu-trial", {"sidecar": {"settings": settings}}))


def test_the_load_test_may_look_at_the_gpu(render: Render) -> None:
    (rule,) = (
        rule for rule in policy(render("loadtest"))["ingress"] if rule["ports"][0]["port"] == 9180
    )
    job = only(render("loadtest"), "Job")["spec"]["template"]["metadata"]["labels"]
    assert rule["from"][0]["podSelector"]["matchLabels"].items() <= job.items()


def test_more_ways_out_are_taken_as_they_are(render: Render) -> None:
    rule = {"to": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": 4317}]}
    assert rule in policy(render("every-option"))["egress"]


@pytest.mark.parametrize("case", ["cpu-trial", "every-option"])
def test_helms_test_reaches_the_server_where_everything_else_is_denied(
    render: Render, case: str
) -> None:
    documents = render(case)
    pod = only(documents, "Pod")["metadata"]
    assert policy(documents, "test")["podSelector"]["matchLabels"].items() <= pod["labels"].items()
    (rule,) = (rule for rule in policy(documents, "test")["egress"] if "to" in rule)
    assert rule == {"to": [{"podSelector": policy(documents)["podSelector"]}], "ports": [
        {"protocol": "TCP", "port": 7860}
    ]}  # fmt: skip


def test_policies_can_be_left_to_the_cluster(render: Render) -> None:
    changes = {"networkPolicy": {"enabled": False}, "podDisruptionBudget": {"enabled": False}}
    kinds = {document["kind"] for document in render("cpu-trial", changes)}
    assert not {"NetworkPolicy", "PodDisruptionBudget"} & kinds


@pytest.mark.parametrize("case", ["rtx-4090-d", "every-option"])
def test_a_drain_takes_one_pod_at_a_time_and_never_waits_for_one_that_serves_nobody(
    render: Render, case: str
) -> None:
    documents = render(case)
    budget = only(documents, "PodDisruptionBudget")["spec"]
    assert budget["selector"] == only(documents, "Deployment")["spec"]["selector"]
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_the_ingress_leads_to_the_service(render: Render) -> None:
    documents = render("keda")
    ingress = only(documents, "Ingress")["spec"]
    (rule,) = ingress["rules"]
    (path,) = rule["http"]["paths"]
    service = only(documents, "Service")
    assert path["backend"]["service"] == {
        "name": service["metadata"]["name"],
        "port": {"name": service["spec"]["ports"][0]["name"]},
    }
    assert ingress["tls"] == [{"hosts": [rule["host"]], "secretName": "ocr-tls"}]


def test_the_address_of_redis_comes_from_its_secret(render: Render) -> None:
    pod = containers(only(render("keda"), "Deployment")["spec"]["template"]["spec"])
    given = [e for e in pod["hunyuan-ocr"]["env"] if e["name"] == "HYOCR_REDIS_URL"]
    assert given == [
        {
            "name": "HYOCR_REDIS_URL",
            "valueFrom": {"secretKeyRef": {"name": "redis", "key": "address"}},
        }
    ]
