"""The number of pods follows the load that callers offer, and nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from hunyuan_ocr.telemetry.metrics import Metrics
from scripts.chart.kustomize import TARGET
from scripts.chart.render import Manifest, containers, only
from tests.chart.conftest import Render

GAUGE = "hunyuan_ocr_offered_load_engine_seconds_per_second"
MONITORING: dict[str, Any] = {"networkPolicy": {"monitoring": [{"namespaceSelector": {}}]}}
SCALER = {"keda": "ScaledObject", "hpa": "HorizontalPodAutoscaler"}


def trigger(documents: list[Manifest]) -> Manifest:
    (found,) = only(documents, "ScaledObject")["spec"]["triggers"]
    return dict(found)


def behavior(documents: list[Manifest], mode: str) -> dict[str, Any]:
    spec = only(documents, SCALER[mode])["spec"]
    if mode == "keda":
        spec = spec["advanced"]["horizontalPodAutoscalerConfig"]
    return dict(spec["behavior"])


def adapter_rule() -> dict[str, Any]:
    path = TARGET / "examples" / "prometheus-adapter" / "adapter-values.yaml"
    (rule,) = yaml.safe_load(path.read_text("utf-8"))["rules"]["external"]
    return dict(rule)


@pytest.mark.parametrize("mode", SCALER)
def test_nobody_but_the_autoscaler_sets_the_number_of_pods(render: Render, mode: str) -> None:
    documents = render(mode)
    deployment = only(documents, "Deployment")
    assert "replicas" not in deployment["spec"]
    target = only(documents, SCALER[mode])["spec"]["scaleTargetRef"]
    assert target["name"] == deployment["metadata"]["name"]
    assert [d["kind"] for d in documents if d["kind"] in SCALER.values()] == [SCALER[mode]]


def test_without_autoscaling_the_values_set_it(render: Render) -> None:
    documents = render("shared-claim")
    assert only(documents, "Deployment")["spec"]["replicas"] == 2
    assert not [d for d in documents if d["kind"] in SCALER.values()]


@pytest.mark.parametrize("mode", SCALER)
def test_there_is_always_a_pod_and_never_a_spare_one(render: Render, mode: str) -> None:
    documents = render(mode)
    spec = only(documents, SCALER[mode])["spec"]
    assert spec.get("minReplicaCount", spec.get("minReplicas")) >= 1
    assert "idleReplicaCount" not in spec
    rolling = only(documents, "Deployment")["spec"]["strategy"]["rollingUpdate"]
    assert rolling == {"maxSurge": 0, "maxUnavailable": 1}


@pytest.mark.parametrize("mode", SCALER)
def test_pods_come_at_once_and_go_late_one_by_one(render: Render, mode: str) -> None:
    found = behavior(render(mode), mode)
    assert found["scaleUp"]["stabilizationWindowSeconds"] == 0
    assert found["scaleDown"]["stabilizationWindowSeconds"] >= 300
    assert found["scaleDown"]["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 60}]


def test_the_load_is_shared_by_all_pods_and_not_by_those_that_are_ready(render: Render) -> None:
    """`Value` targets are multiplied by the pods that are ready, so pods would ask for pods."""
    assert trigger(render("keda"))["metricType"] == "AverageValue"
    (metric,) = only(render("hpa"), "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "700m"}


def test_a_lost_metric_lowers_nothing(render: Render) -> None:
    documents = render("keda")
    assert trigger(documents)["metadata"]["ignoreNullValues"] == "false"
    assert only(documents, "ScaledObject")["spec"]["fallback"] == {
        "failureThreshold": 3,
        "replicas": 1,
        "behavior": "currentReplicasIfHigher",
    }


def test_keda_asks_for_one_number_of_this_release_alone(render: Render) -> None:
    asked = trigger(render("keda"))["metadata"]
    assert asked["serverAddress"] == "http://prometheus-operated.monitoring:9090"
    # Both in percent: a threshold below one has been rounded to nothing by some releases.
    assert asked["threshold"] == "80"
    selector = (
        'namespace="ocr",app_kubernetes_io_instance="hunyuan-ocr",'
        'app_kubernetes_io_name="hunyuan-ocr"'
    )
    assert asked["query"] == (f"100 * sum(avg_over_time({GAUGE}{{{selector}}}[1m]) and {GAUGE})")


def test_a_query_of_ones_own_takes_its_place(render: Render) -> None:
    changes = {"autoscaling": {"prometheus": {"query": 'sum(load{app="ocr"})'}}}
    asked = trigger(render("keda", changes))["metadata"]["query"]
    assert asked == '100 * (sum(load{app="ocr"}))'


def test_the_service_emits_what_is_asked_for(render: Render) -> None:
    emitted = {family.name for family in Metrics("test").registry.collect()}
    (metric,) = only(render("hpa"), "HorizontalPodAutoscaler")["spec"]["metrics"]
    asked = {
        *re.findall(r"hunyuan_ocr_\w+", trigger(render("keda"))["metadata"]["query"]),
        *re.findall(r"hunyuan_ocr_\w+", adapter_rule()["seriesQuery"]),
        metric["external"]["metric"]["name"],
    }
    assert asked == {GAUGE}
    assert asked <= emitted


def test_both_ways_ask_the_same(render: Render) -> None:
    (metric,) = only(render("hpa"), "HorizontalPodAutoscaler")["spec"]["metrics"]
    labels = metric["external"]["metric"]["selector"]["matchLabels"] | {"namespace": "ocr"}
    matchers = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    query = adapter_rule()["metricsQuery"].replace("<<.Series>>", GAUGE)
    by_adapter = query.replace("<<.LabelMatchers>>", matchers)
    by_keda = trigger(render("keda"))["metadata"]["query"]
    assert sorted(re.split(r"[{},]", "100 * " + by_adapter)) == sorted(re.split(r"[{},]", by_keda))


def test_the_monitor_brings_the_labels_that_autoscaling_goes_by(render: Render) -> None:
    documents = render("keda")
    monitor = only(documents, "PodMonitor")["spec"]
    pod = only(documents, "Deployment")["spec"]["template"]
    assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    brought = {
        re.sub(r"\W", "_", label): pod["metadata"]["labels"][label]
        for label in monitor["podTargetLabels"]
    }
    (metric,) = only(render("hpa"), "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert brought == metric["external"]["metric"]["selector"]["matchLabels"]


def test_the_monitor_reads_the_management_port_alone(render: Render) -> None:
    documents = render("keda")
    pod = containers(only(documents, "Deployment")["spec"]["template"]["spec"])
    ports = {p["name"]: p["containerPort"] for p in pod["hunyuan-ocr"]["ports"]}
    endpoints = only(documents, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert {(ports[e["port"]], e["path"]) for e in endpoints} == {
        (9180, "/metrics"),
        (9180, "/metrics/engine"),
    }
    embedded = render("embedded", MONITORING | {"podMonitor": {"enabled": True}})
    (alone,) = only(embedded, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert alone["path"] == "/metrics"
