"""The series there are, by name: type and labels, from those who emit them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from dashboards.generate import HERE, rules
from dashboards.scrape import samples
from hunyuan_ocr.telemetry.gpu_metrics import GpuMetrics
from hunyuan_ocr.telemetry.metrics import Metrics
from hunyuan_ocr.traffic.thermal import ThermalProfile

Series = dict[str, tuple[str, set[str]]]

# What Prometheus adds to what it reads from a pod.
TARGET = {"namespace", "job", "instance", "pod", "endpoint"}
VLLM = ("vllm-0.28", "vllm-0.32")
OUTSIDE = ("dcgm-exporter-4.8", "kube-state-metrics-2", "cadvisor", "prometheus")


def service() -> Series:
    """Of a pod with a GPU."""
    registry = Metrics("test").registry
    GpuMetrics(registry, ThermalProfile())
    return with_target(samples(_lines(registry)))


def golden(name: str) -> Series:
    lines = (HERE / "golden" / f"{name}.txt").read_text("utf-8").splitlines()
    return samples(lines)


def outside() -> Series:
    """Of exporters that know of pods themselves; their `pod` may be called `exported_pod`."""
    found: Series = {}
    for name in OUTSIDE:
        for series, (kind, labels) in golden(name).items():
            found[series] = kind, labels | {f"exported_{label}" for label in labels} | TARGET
    return found


def recorded() -> Series:
    return {
        rule["record"]: ("gauge", {"namespace", "job"})
        for group in rules()["groups"]
        for rule in group["rules"]
        if "record" in rule
    }


def with_target(series: Series) -> Series:
    return {name: (kind, labels | TARGET) for name, (kind, labels) in series.items()}


def everything(vllm: str) -> Series:
    """Where names are the same the service's count: vLLM has `process_…` as well."""
    return with_target(golden(vllm)) | outside() | recorded() | service()


def _lines(registry: CollectorRegistry) -> list[str]:
    """Of the collectors and not of samples, which there are none of before anything happened."""
    lines = []
    for collector in registry._collector_to_names:
        named = getattr(collector, "_labelnames", ())
        for family in getattr(collector, "describe", collector.collect)():
            state = [family.name] if family.type == "stateset" else []
            total = "_total" if family.type == "counter" else ""
            lines.append(" ".join((family.name + total, family.type, *named, *state)))
    return lines
