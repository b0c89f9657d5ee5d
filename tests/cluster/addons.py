"""What a cluster of users has beside the chart: Prometheus, and one of two autoscalers.

The cluster's network leads nowhere: its images hold PROGRAMS from the start, and KEDA's definitions
must be in the cache.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from scripts.chart import definitions
from tests.cluster.kube import Cluster
from tests.cluster.running import ROOT

MANIFESTS = Path(__file__).with_name("addons")
EXAMPLES = ROOT / "k8s" / "examples"
PROGRAMS = ("prometheus", "prometheus-adapter", "keda-operator", "keda-adapter")
# Of the chart's values.
LETS_PROMETHEUS_IN: Mapping[str, object] = {
    "networkPolicy.monitoring[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name":
        "monitoring",
}  # fmt: skip
_READY_S = 180


@contextmanager
def prometheus(cluster: Cluster) -> Iterator[None]:
    """A Prometheus that reads all pods of the chart, in the namespace `monitoring`."""
    scrape = (EXAMPLES / "prometheus" / "scrape.yaml").read_text("utf-8")
    with _applied(cluster, "prometheus.yaml"):
        _configure(cluster, "prometheus", "scrape.yaml", scrape)
        _wait(cluster, "monitoring", "prometheus")
        yield


@contextmanager
def no_prometheus(cluster: Cluster) -> Iterator[None]:
    """Without the Prometheus that `prometheus` brought."""

    def scale(count: int) -> None:
        words = ("scale", "deployment/prometheus", f"--replicas={count}")
        cluster.kubectl("-n", "monitoring", *words)

    scale(0)
    try:
        yield
    finally:
        scale(1)
        cluster.kubectl(
            "-n", "monitoring", "rollout", "status", "deployment/prometheus", "--timeout=60s"
        )


@contextmanager
def prometheus_adapter(cluster: Cluster) -> Iterator[None]:
    """External metrics out of that Prometheus, for HPAs."""
    values = yaml.safe_load((EXAMPLES / "prometheus-adapter" / "adapter-values.yaml").read_text())
    rules = {"externalRules": values["rules"]["external"]}
    with _applied(cluster, "prometheus-adapter.yaml"):
        _configure(cluster, "prometheus-adapter", "config.yaml", json.dumps(rules))
        _wait(cluster, "monitoring", "prometheus-adapter")
        yield


@contextmanager
def keda(cluster: Cluster) -> Iterator[None]:
    """KEDA, in the namespace `keda`; its definitions stay."""
    for path in sorted(definitions.provide().glob("*keda*.yaml")):
        cluster.kubectl("apply", "--server-side", "-f", str(path))
    with _applied(cluster, "keda.yaml"):
        _wait(cluster, "keda", "keda-operator")
        _wait(cluster, "keda", "keda-metrics-apiserver")
        yield


@contextmanager
def _applied(cluster: Cluster, name: str) -> Iterator[None]:
    path = str(MANIFESTS / name)
    cluster.kubectl("apply", "-f", path)
    try:
        yield
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "--timeout=120s", "-f", path, timeout_s=130)


def _configure(cluster: Cluster, name: str, key: str, text: str) -> None:
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "monitoring"},
        "data": {key: text},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(config))


def _wait(cluster: Cluster, namespace: str, deployment: str) -> None:
    words = ("rollout", "status", f"deployment/{deployment}", f"--timeout={_READY_S}s")
    cluster.kubectl("-n", namespace, *words, timeout_s=_READY_S + 10)
