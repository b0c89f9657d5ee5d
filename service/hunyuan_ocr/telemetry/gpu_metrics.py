"""The card as its probe sees it, for dashboards and alerts; registered only where there is one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from hunyuan_ocr.gpu.reading import GpuReading
from hunyuan_ocr.traffic.thermal import ThermalProfile

# Beyond it is a counter that was away for a while, not time in which the card was throttled.
_GROWTH_MAX_S = 60.0


class GpuMetrics:
    """Of several cards the worst of each figure, as `GpuReading` has it; what is unknown is NaN."""

    def __init__(self, registry: CollectorRegistry, profile: ThermalProfile) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"hunyuan_ocr_gpu_{name}", text, registry=registry)

        self._age = gauge("telemetry_age_seconds", "Age of the last sample of the GPU's sensors.")
        self._stale = gauge("telemetry_stale", "1 while the GPU's sensors are silent.")
        self._limit_factor = gauge(
            "limit_factor_ratio", "What heat leaves of the limit on slots, 1 where all."
        )
        self._figures = {
            "temperature_c": gauge("temperature_celsius", "Temperature of the GPU."),
            "slowdown_in_c": gauge(
                "slowdown_margin_celsius", "Degrees left until the hardware slows the GPU down."
            ),
            "utilisation": gauge("utilization_ratio", "Share of time in which the GPU worked."),
            "memory_used_bytes": gauge("memory_used_bytes", "GPU memory in use."),
            "memory_total_bytes": gauge("memory_total_bytes", "GPU memory."),
            "power_w": gauge("power_watts", "Power that the GPU draws."),
            "sm_clock_mhz": gauge("sm_clock_megahertz", "Clock of the GPU's multiprocessors."),
        }
        self._thresholds = Gauge(
            "hunyuan_ocr_gpu_threshold_celsius",
            "Where the hardware slows the GPU down, where the breaker may open before that, and "
            "where the limit on slots is lowered if the card does not tell its clock.",
            ["at"],
            registry=registry,
        )
        # Degrees below the slowdown.
        self._thresholds_below_c = {
            "slowdown": 0.0,
            "open": profile.open_within_c,
            "derate": profile.derate_within_c,
        }
        self._throttled = Counter(
            "hunyuan_ocr_gpu_throttled_seconds_total",
            "Time in which heat throttled the GPU, since it was first seen.",
            registry=registry,
        )
        self._throttled_ns: int | None = None

    def show(self, reading: GpuReading, limit_factor: float, *, stale: bool) -> None:
        self._age.set(reading.age_s)
        self._stale.set(stale)
        self._limit_factor.set(limit_factor)
        for name, gauge in self._figures.items():
            value = getattr(reading, name)
            gauge.set(float("nan") if value is None else value)
        slowdown_c = _slowdown_c(reading)
        for at, below_c in self._thresholds_below_c.items():
            self._thresholds.labels(at).set(slowdown_c - below_c)
        before, now = self._throttled_ns, reading.throttled_ns
        if before is not None and now is not None:
            grown_s = (now - before) / 1e9
            if 0 <= grown_s <= _GROWTH_MAX_S:
                self._throttled.inc(grown_s)
        self._throttled_ns = now if now is not None else before


def _slowdown_c(reading: GpuReading) -> float:
    """The temperature at which the hardware slows the worst card down, NaN where unknown."""
    for card in reading.devices[:1]:
        if card.temperature_c is not None and card.slowdown_in_c is not None:
            return card.temperature_c + card.slowdown_in_c
    return float("nan")
