"""The service's metrics, in a registry of its own so that two apps can share a process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# Every SLO value must be a bucket boundary; 120 s covers the longest interactive wait.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120)


class Metrics:
    """Labels are bounded by construction: routes, statuses, stages, codes, tasks, engines."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        build = Gauge("hunyuan_ocr_build_info", "Build.", ["version"], registry=self.registry)
        build.labels(version).set(1)
        self.request_seconds = Histogram(
            "hunyuan_ocr_request_duration_seconds",
            "Time from the request's first byte to the answer's last.",
            ["route", "method", "status"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.refused = Counter(
            "hunyuan_ocr_errors_total",
            "Requests and pages answered with a problem, by its code.",
            ["code"],
            registry=self.registry,
        )
        self.cancelled = Counter(
            "hunyuan_ocr_cancelled_total",
            "Requests whose client left before the answer.",
            registry=self.registry,
        )
        self.stage_seconds = Histogram(
            "hunyuan_ocr_stage_duration_seconds",
            "Time a page or request spent in a stage.",
            ["stage"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.pages = Counter(
            "hunyuan_ocr_pages_total",
            "Pages finished.",
            ["task", "engine", "outcome"],
            registry=self.registry,
        )
        self.megapixels = Counter(
            "hunyuan_ocr_megapixels_total",
            "Source megapixels of pages read.",
            registry=self.registry,
        )
        self.tokens = Counter(
            "hunyuan_ocr_tokens_total",
            "Tokens as the engine counted them.",
            ["direction"],
            registry=self.registry,
        )
        self.pages_waiting = Gauge(
            "hunyuan_ocr_pages_waiting", "Pages waiting for a slot.", registry=self.registry
        )
        self.pages_in_flight = Gauge(
            "hunyuan_ocr_pages_in_flight", "Pages in the engine.", registry=self.registry
        )
        self.body_bytes = Gauge(
            "hunyuan_ocr_body_bytes", "Request bodies held in memory.", registry=self.registry
        )
        self.loop_lag_seconds = Histogram(
            "hunyuan_ocr_event_loop_lag_seconds",
            "How late the event loop ran a timer.",
            buckets=(0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1),
            registry=self.registry,
        )
