"""The wiring of a page's way: an engine, who is admitted to it, who spares it, and the pipeline."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from opentelemetry.trace import Tracer

from hunyuan_ocr.calibrator import Calibrator
from hunyuan_ocr.documents.header import Limits
from hunyuan_ocr.documents.prepare import Preparer
from hunyuan_ocr.engines.base import Engine, EngineListener
from hunyuan_ocr.engines.embedded import EmbeddedEngine
from hunyuan_ocr.engines.visual_tokens import PixelBounds
from hunyuan_ocr.engines.vllm import VllmEngine, VllmOptions
from hunyuan_ocr.guard_wiring import Herald, build_guard
from hunyuan_ocr.pipeline import Pipeline, PipelineLimits
from hunyuan_ocr.settings import Settings
from hunyuan_ocr.telemetry.metrics import Metrics
from hunyuan_ocr.traffic.admission_control import AdmissionControl
from hunyuan_ocr.traffic.breaker_states import State, Transition
from hunyuan_ocr.traffic.drain import Drain
from hunyuan_ocr.traffic.engine_guard import EngineGuard
from hunyuan_ocr.traffic.ratelimit import RateLimiter
from hunyuan_ocr.traffic_wiring import build_admission_control

_MEGA = 1_000_000
# Some pages of a long document may be asked for; this bounds only the reading of its header, which
# takes a tenth of a second for as many.
_DOCUMENT_PAGES_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Way:
    """An engine, who is admitted to it, who spares it, and the way of a page through all that."""

    engine: Engine
    admission: AdmissionControl
    guard: EngineGuard
    pipeline: Pipeline


@dataclass(frozen=True, slots=True)
class Shared:
    """What all ways of a page have together."""

    limiter: RateLimiter
    preparer: Preparer
    metrics: Metrics
    tracer: Tracer
    herald: Herald
    drain: Drain


def _ignore(_: Transition) -> None:
    pass


def build_way(settings: Settings, shared: Shared, instead_of: Way | None = None) -> Way:
    """`instead_of`: the way it stands in for, whose metrics tell of load and of the breaker."""
    metrics = shared.metrics
    told = instead_of is None

    def hear(outcome: str, engine_s: float) -> None:
        if told:
            metrics.admission.offered.labels(outcome).inc(engine_s)

    def engine_ready() -> bool:
        # Open, the breaker refuses who waits; they need not wait to hear that.
        return engine.refusal() is None or guard.state.state is State.OPEN

    admission = build_admission_control(settings, shared.limiter, hear, engine_ready)
    guard = build_guard(settings, admission, shared.herald.moved if told else _ignore)
    calibrator = Calibrator(admission, random.Random(), time.monotonic)  # noqa: S311
    engine = build_engine(settings, calibrator, shared.tracer)
    metrics.pages.expect(engine.capabilities.engine, engine.capabilities.tasks)
    limits = PipelineLimits(
        document=Limits(
            max_megapixels=settings.max_image_megapixels,
            max_pages=_DOCUMENT_PAGES_MAX,
            pdf_dpi=settings.pdf_dpi,
        ),
        max_pages=settings.max_pages,
        pages_at_once=engine.capabilities.concurrency + settings.decode_workers,
        pdf_dpi=settings.pdf_dpi,
        max_tiles=settings.max_tiles,
    )
    pipeline = Pipeline(
        engine=engine,
        preparer=shared.preparer,
        control=admission,
        guard=guard,
        limits=limits,
        metrics=metrics,
        drain=shared.drain,
        spool_directory=settings.spool_directory,
        stands_in=not told,
    )
    return Way(engine, admission, guard, pipeline)


def build_engine(settings: Settings, listener: EngineListener, tracer: Tracer) -> Engine:
    if settings.engine == "vllm":
        rng = random.Random()  # noqa: S311
        return VllmEngine(vllm_options(settings), rng, listener, tracer=tracer)
    return EmbeddedEngine(
        workers=settings.embedded_workers,
        threads_per_worker=settings.embedded_threads_per_worker,
        page_timeout_s=settings.embedded_page_timeout_s,
        max_pixels=int(settings.embedded_max_megapixels * _MEGA),
        high_pixels=int(settings.embedded_high_megapixels * _MEGA),
        listener=listener,
    )


def vllm_options(settings: Settings) -> VllmOptions:
    return VllmOptions(
        base_url=settings.vllm_url,
        generation=settings.vllm_generation,
        concurrency=settings.vllm_concurrency,
        pixels=PixelBounds(settings.vllm_min_pixels, settings.vllm_max_pixels),
        page_pixels=settings.vllm_page_pixels,
        high_pixels=settings.vllm_high_pixels,
        encoder_tokens=settings.vllm_encoder_tokens,
        max_output_tokens=settings.vllm_max_output_tokens,
        hung_after_s=settings.vllm_hung_after_s,
        isolation_check=settings.isolation_check,
    )


def build_preparer(settings: Settings) -> Preparer:
    return Preparer(
        workers=settings.decode_workers,
        max_pages_per_worker=settings.pages_per_decode_worker,
        page_timeout_s=settings.decode_timeout_s,
        max_memory_bytes=settings.decode_worker_memory_megabytes * _MEGA,
    )
