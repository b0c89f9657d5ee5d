"""The service's metrics, in a registry of its own so that two apps can share a process.

Labels are bounded by construction: routes, statuses, stages, codes, tasks, engines. What a label
can be is there from the start where an alert counts it, so that its first increase is seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Enum,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from hunyuan_ocr import errors
from hunyuan_ocr.traffic.breaker_states import Reason, State

# 120 s covers the longest interactive wait.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120)
# What most pages that fail end with.
_PAGE_ERRORS = (
    errors.AnswerInvalid,
    errors.BreakerOpen,
    errors.DeadlineExceeded,
    errors.DocumentError,
    errors.Draining,
    errors.EngineRejected,
    errors.EngineUnavailable,
    errors.ImageCorrupt,
    errors.ImageTooLarge,
    errors.PageFailed,
)
_FINISH_REASONS = ("stop", "length", "repetition", "blank")
_RETRY_REASONS = ("repetition", "figures_only", "schema_retry")
_OFFERED_OUTCOMES = ("admitted", "queue_full", "deadline_unreachable")

# Prometheus would keep as many series again, to say when each began.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """All of them; `slo_interactive_s` is a bucket boundary of what callers wait."""

    def __init__(self, version: str, slo_interactive_s: float = 2.0) -> None:
        self.registry = CollectorRegistry()
        self.requests = RequestMetrics(self.registry, slo_interactive_s)
        self.pages = PageMetrics(self.registry)
        self.admission = AdmissionMetrics(self.registry)
        self.guard = GuardMetrics(self.registry)
        self.process = ProcessMetrics(self.registry, version)


class RequestMetrics:
    """What callers notice."""

    def __init__(self, registry: CollectorRegistry, slo_interactive_s: float) -> None:
        self.seconds = Histogram(
            "hunyuan_ocr_request_duration_seconds",
            "Time from the request's first byte to the answer's last.",
            ["route", "method", "status", "class"],
            buckets=sorted({*_SECONDS, slo_interactive_s}),
            registry=registry,
        )
        slo = Gauge(
            "hunyuan_ocr_slo_interactive_seconds",
            "Time within which an interactive page should be answered; `le` is its bucket.",
            ["le"],
            registry=registry,
        )
        slo.labels(str(float(slo_interactive_s))).set(slo_interactive_s)
        self.errors = Counter(
            "hunyuan_ocr_errors_total",
            "Requests answered with a problem, by its code.",
            ["code"],
            registry=registry,
        )
        for error in errors.error_classes():
            self.errors.labels(error.code)
        self.cancelled = Counter(
            "hunyuan_ocr_cancelled_total",
            "Requests whose client left before the answer.",
            registry=registry,
        )
        self.body_bytes = Gauge(
            "hunyuan_ocr_body_bytes", "Request bodies held in memory.", registry=registry
        )
        self.usage_lost = Counter(
            "hunyuan_ocr_usage_records_lost_total",
            "Usage records that could not be written.",
            registry=registry,
        )


class PageMetrics:
    """What became of pages, and what they cost."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.stage_seconds = Histogram(
            "hunyuan_ocr_stage_duration_seconds",
            "Time a page or request spent in a stage.",
            ["stage"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.service_ratio = Histogram(
            "hunyuan_ocr_service_ratio",
            "Time of a page in the engine, measured / what it takes on this engine in health.",
            buckets=(0.25, 0.5, 0.75, 1, 1.3, 1.6, 2, 3, 5, 10),
            registry=registry,
        )
        self.outcomes = Counter(
            "hunyuan_ocr_pages_total",
            "Pages finished; `outcome` is ok or the code of what a page failed with.",
            ["task", "engine", "outcome"],
            registry=registry,
        )
        self.finished = Counter(
            "hunyuan_ocr_finished_pages_total",
            "Pages read, by how their text ended.",
            ["task", "reason"],
            registry=registry,
        )
        self.megapixels = Counter(
            "hunyuan_ocr_megapixels_total", "Source megapixels of pages read.", registry=registry
        )
        self.tokens = Counter(
            "hunyuan_ocr_tokens_total",
            "Tokens as the engine counted them; of an answer cut short, those that came.",
            ["direction"],
            registry=registry,
        )
        self.slot_seconds = Counter(
            "hunyuan_ocr_engine_slot_seconds_total",
            "Cost of pages that had the engine: predicted by their price, and used.",
            ["kind"],
            registry=registry,
        )
        self.retries = Counter(
            "hunyuan_ocr_engine_retries_total",
            "Answers that were asked for again, by what was wrong with the first.",
            ["reason"],
            registry=registry,
        )
        self.degraded = Counter(
            "hunyuan_ocr_degraded_pages_total",
            "Pages read with fewer pixels than usual because of the load.",
            registry=registry,
        )
        for direction in ("prompt", "output"):
            self.tokens.labels(direction)
        for kind in ("predicted", "used"):
            self.slot_seconds.labels(kind)
        for reason in _RETRY_REASONS:
            self.retries.labels(reason)

    def expect(self, engine: str, tasks: Iterable[str]) -> None:
        """Pages of these tasks will come from this engine."""
        outcomes = ("ok", *(error.code for error in _PAGE_ERRORS))
        for task in tasks:
            for outcome in outcomes:
                self.outcomes.labels(task, engine, outcome)
            for reason in _FINISH_REASONS:
                self.finished.labels(task, reason)


class AdmissionMetrics:
    """Who waits for the engine, and who is turned away."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.pages_waiting = Gauge(
            "hunyuan_ocr_pages_waiting",
            "Pages admitted that wait for the engine.",
            ["class"],
            registry=registry,
        )
        self.queue_fullness = Gauge(
            "hunyuan_ocr_queue_fullness_ratio",
            "Work that waits, as a part of what may.",
            ["class"],
            registry=registry,
        )
        self.pages_in_flight = Gauge(
            "hunyuan_ocr_pages_in_flight", "Pages in the engine.", registry=registry
        )
        self.slots_held = Gauge(
            "hunyuan_ocr_slots_held", "Slots of the engine in use.", registry=registry
        )
        self.slots_limit = Gauge(
            "hunyuan_ocr_slots_limit", "Slots that may be in use.", registry=registry
        )
        self.degradation_step = Gauge(
            "hunyuan_ocr_degradation_step",
            "0: none, 1: batch is slowed, 2: pages are shown to the engine with fewer pixels.",
            registry=registry,
        )
        self.quota_store_down = Gauge(
            "hunyuan_ocr_quota_store_down",
            "1 while Redis does not answer and each replica's quotas count alone.",
            registry=registry,
        )
        self.offered = Counter(
            "hunyuan_ocr_offered_engine_seconds_total",
            "Work asked for in seconds of the whole engine, admitted or refused.",
            ["outcome"],
            registry=registry,
        )
        for outcome in _OFFERED_OUTCOMES:
            self.offered.labels(outcome)
        self.offered_load = Gauge(
            "hunyuan_ocr_offered_load_engine_seconds_per_second",
            "Work in flight, waiting and refused: 1 is what one replica can do. For autoscalers.",
            registry=registry,
        )


class GuardMetrics:
    """How the engine is, and what the breaker makes of it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.engine_dead_seconds = Gauge(
            "hunyuan_ocr_engine_dead_seconds",
            "How long an engine that was up has been gone, or hung while work waited.",
            registry=registry,
        )
        self.breaker_state = Enum(
            "hunyuan_ocr_breaker_state",
            "The circuit breaker before the engine.",
            states=["closed", "half_open", "open"],
            registry=registry,
        )
        self.breaker_transitions = Counter(
            "hunyuan_ocr_breaker_transitions_total",
            "Changes of the breaker's state, by the state it came to and why.",
            ["state", "reason"],
            registry=registry,
        )
        for state, reason in product(State, Reason):
            self.breaker_transitions.labels(state, reason)


class ProcessMetrics:
    """The serving process itself."""

    def __init__(self, registry: CollectorRegistry, version: str) -> None:
        build = Gauge("hunyuan_ocr_build_info", "Build.", ["version"], registry=registry)
        build.labels(version).set(1)
        self.ready = Gauge(
            "hunyuan_ocr_ready", "1 while /readyz says that pages may be sent.", registry=registry
        )
        self.draining = Gauge(
            "hunyuan_ocr_draining", "1 from the beginning of a drain.", registry=registry
        )
        self.loop_tasks = Gauge(
            "hunyuan_ocr_event_loop_tasks",
            "Tasks of the event loop: what keeps growing here leaks.",
            registry=registry,
        )
        self.loop_lag_seconds = Histogram(
            "hunyuan_ocr_event_loop_lag_seconds",
            "How late the event loop ran a timer.",
            buckets=(0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1),
            registry=registry,
        )
        ProcessCollector(registry=registry)
