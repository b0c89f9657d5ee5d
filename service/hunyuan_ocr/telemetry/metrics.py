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
        self.degraded = Counter(
            "hunyuan_ocr_degraded_pages_total",
            "Pages read with fewer pixels than usual because of the load.",
            registry=self.registry,
        )
        self.pages_waiting = Gauge(
            "hunyuan_ocr_pages_waiting",
            "Pages admitted that wait for the engine.",
            ["class"],
            registry=self.registry,
        )
        self.queue_fullness = Gauge(
            "hunyuan_ocr_queue_fullness_ratio",
            "Work that waits, as a part of what may.",
            ["class"],
            registry=self.registry,
        )
        self.pages_in_flight = Gauge(
            "hunyuan_ocr_pages_in_flight", "Pages in the engine.", registry=self.registry
        )
        self.slots_held = Gauge(
            "hunyuan_ocr_slots_held", "Slots of the engine in use.", registry=self.registry
        )
        self.slots_limit = Gauge(
            "hunyuan_ocr_slots_limit", "Slots that may be in use.", registry=self.registry
        )
        self.service_ratio = Histogram(
            "hunyuan_ocr_service_ratio",
            "Time of a page in the engine, measured / what it takes on this engine in health.",
            buckets=(0.25, 0.5, 0.75, 1, 1.3, 1.6, 2, 3, 5, 10),
            registry=self.registry,
        )
        self.degradation_step = Gauge(
            "hunyuan_ocr_degradation_step",
            "0: none, 1: batch is slowed, 2: pages are shown to the engine with fewer pixels.",
            registry=self.registry,
        )
        self.quota_store_down = Gauge(
            "hunyuan_ocr_quota_store_down",
            "1 while Redis does not answer and each replica's quotas count alone.",
            registry=self.registry,
        )
        self.offered = Counter(
            "hunyuan_ocr_offered_engine_seconds_total",
            "Work asked for in seconds of the whole engine, admitted or refused.",
            ["outcome"],
            registry=self.registry,
        )
        self.offered_load = Gauge(
            "hunyuan_ocr_offered_load_engine_seconds_per_second",
            "Work in flight, waiting and refused: 1 is what one replica can do. For autoscalers.",
            registry=self.registry,
        )
        self.body_bytes = Gauge(
            "hunyuan_ocr_body_bytes", "Request bodies held in memory.", registry=self.registry
        )
        self.loop_tasks = Gauge(
            "hunyuan_ocr_event_loop_tasks",
            "Tasks of the event loop: what keeps growing here leaks.",
            registry=self.registry,
        )
        self.loop_lag_seconds = Histogram(
            "hunyuan_ocr_event_loop_lag_seconds",
            "How late the event loop ran a timer.",
            buckets=(0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1),
            registry=self.registry,
        )
