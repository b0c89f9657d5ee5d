"""The wiring: which parts a service is made of, built from settings by constructor."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.security import APIKeyHeader, HTTPBearer
from opentelemetry.trace import TracerProvider
from redis.asyncio import Redis
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp

from hunyuan_ocr.api.callers import Callers
from hunyuan_ocr.api.control import control_app
from hunyuan_ocr.api.drain import ConnectionEnds, DrainGate
from hunyuan_ocr.api.formats import FORMATS
from hunyuan_ocr.api.keys import KeyRing
from hunyuan_ocr.api.live import ClientGone
from hunyuan_ocr.api.middleware import BodyLimits, RequestScope
from hunyuan_ocr.api.ocr import OcrLimits, OcrRoutes
from hunyuan_ocr.api.openai import OpenAiRoutes
from hunyuan_ocr.api.openapi import install_openapi
from hunyuan_ocr.api.ops import management_app, options_router
from hunyuan_ocr.api.problems import handle_error
from hunyuan_ocr.api.rate_limit import QuotaDisplay
from hunyuan_ocr.calibrator import Calibrator
from hunyuan_ocr.documents.document import READABLE
from hunyuan_ocr.documents.header import Limits
from hunyuan_ocr.documents.prepare import Preparer
from hunyuan_ocr.engines.base import Engine, EngineListener
from hunyuan_ocr.engines.embedded import EmbeddedEngine
from hunyuan_ocr.engines.visual_tokens import PixelBounds
from hunyuan_ocr.engines.vllm import VllmEngine, VllmOptions
from hunyuan_ocr.errors import Draining, OcrError, Unavailable
from hunyuan_ocr.pipeline import Pipeline, PipelineLimits
from hunyuan_ocr.settings import Settings
from hunyuan_ocr.telemetry.metrics import Metrics
from hunyuan_ocr.telemetry.tracing import shut_down, tracer_provider
from hunyuan_ocr.traffic.admission_control import AdmissionControl
from hunyuan_ocr.traffic.byte_budget import ByteBudget
from hunyuan_ocr.traffic.classes import Priority
from hunyuan_ocr.traffic.drain import Drain, Drainer
from hunyuan_ocr.traffic_wiring import (
    build_admission_control,
    quota_store,
    quotas,
    watch_pressure,
)

VERSION = version("hunyuan-ocr")
_MEGA = 1_000_000
_LAG_PERIOD_S = 0.1
# Some pages of a long document may be asked for; this bounds only the reading of its header.
_DOCUMENT_PAGES_MAX = 10_000
_DESCRIPTION = (
    "Reads the text out of images and documents. Errors are problem+json with a stable `code`."
)


@dataclass(frozen=True, slots=True)
class Service:
    """A built service. Its three applications answer while inside `running`."""

    settings: Settings
    api: ASGIApp
    management: ASGIApp
    control: ASGIApp
    openapi: Callable[[], dict[str, Any]]
    pipeline: Pipeline
    engine: Engine
    preparer: Preparer
    admission: AdmissionControl
    redis: Redis | None
    metrics: Metrics
    traces: TracerProvider
    drainer: Drainer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the parts; on leaving stop them and give everything back."""
        async with AsyncExitStack() as stack:
            stack.callback(shut_down, self.traces)
            stack.push_async_callback(self.preparer.close)
            self.preparer.start()
            stack.push_async_callback(self.engine.close)
            await self.engine.start()
            if self.redis is not None:
                stack.push_async_callback(self.redis.aclose)
            for watch in (_observe_lag(self.metrics), watch_pressure(self.admission, self.metrics)):
                stack.push_async_callback(_stop, asyncio.create_task(watch))
            yield


def build(settings: Settings) -> Service:
    """Build a service; starts nothing. A second one in the same process is its own."""
    metrics = Metrics(VERSION)
    traces = tracer_provider(VERSION, settings.otlp_endpoint)
    redis = quota_store(settings)
    admission = build_admission_control(settings, metrics, redis)
    calibrator = Calibrator(admission, random.Random(), time.monotonic)  # noqa: S311
    engine = build_engine(settings, calibrator)
    preparer = build_preparer(settings)
    drain = Drain(time.monotonic)
    drainer = Drainer(drain, settings.markers_directory)
    pipeline = build_pipeline(settings, engine, preparer, admission, metrics, drain)
    routes = _api(settings, pipeline, engine, admission)

    def unready() -> Unavailable | None:
        return Draining("the service is draining") if drain.begun else engine.refusal()

    return Service(
        settings=settings,
        api=_surrounded(routes, settings, metrics, traces, drain),
        management=management_app(
            metrics, engine, refusal=unready, hung_limit_s=settings.engine_hung_limit_s
        ),
        control=control_app(
            drainer, settings.drain_propagation_s, lambda: admission.admission.begun
        ),
        openapi=routes.openapi,
        pipeline=pipeline,
        engine=engine,
        preparer=preparer,
        admission=admission,
        redis=redis,
        metrics=metrics,
        traces=traces,
        drainer=drainer,
    )


def _surrounded(
    routes: ASGIApp, settings: Settings, metrics: Metrics, traces: TracerProvider, drain: Drain
) -> ASGIApp:
    """The routes and what every request passes on its way to them, the outermost last."""
    limited = BodyLimits(
        routes,
        max_bytes=int(settings.max_body_megabytes * _MEGA),
        timeout_s=settings.body_timeout_s,
        budget=_body_budget(settings, metrics),
    )
    scoped = RequestScope(
        DrainGate(limited, drain),
        metrics=metrics,
        tracer=traces.get_tracer("hunyuan_ocr"),
        clock=time.monotonic,
    )
    return ConnectionEnds(scoped, drain)


def build_engine(settings: Settings, listener: EngineListener) -> Engine:
    if settings.engine == "vllm":
        return VllmEngine(vllm_options(settings), random.Random(), listener)  # noqa: S311
    return EmbeddedEngine(
        workers=settings.embedded_workers,
        threads_per_worker=settings.embedded_threads_per_worker,
        page_timeout_s=settings.embedded_page_timeout_s,
        max_pixels=int(settings.embedded_max_megapixels * _MEGA),
        listener=listener,
    )


def vllm_options(settings: Settings) -> VllmOptions:
    return VllmOptions(
        base_url=settings.vllm_url,
        generation=settings.vllm_generation,
        concurrency=settings.vllm_concurrency,
        pixels=PixelBounds(settings.vllm_min_pixels, settings.vllm_max_pixels),
        page_pixels=settings.vllm_page_pixels,
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


def build_pipeline(
    settings: Settings,
    engine: Engine,
    preparer: Preparer,
    admission: AdmissionControl,
    metrics: Metrics,
    drain: Drain,
) -> Pipeline:
    limits = PipelineLimits(
        document=Limits(
            max_megapixels=settings.max_image_megapixels,
            max_pages=_DOCUMENT_PAGES_MAX,
            pdf_dpi=settings.pdf_dpi,
        ),
        max_pages=settings.max_pages,
        pages_at_once=engine.capabilities.concurrency + settings.decode_workers,
        pdf_dpi=settings.pdf_dpi,
    )
    return Pipeline(
        engine=engine,
        preparer=preparer,
        control=admission,
        limits=limits,
        metrics=metrics,
        drain=drain,
        spool_directory=settings.spool_directory,
    )


def _api(
    settings: Settings, pipeline: Pipeline, engine: Engine, admission: AdmissionControl
) -> FastAPI:
    errors: tuple[type[Exception], ...] = (
        OcrError,
        RequestValidationError,
        HTTPException,
        ClientGone,
        Exception,
    )
    app = FastAPI(
        title="hunyuan-ocr",
        version=VERSION,
        description=_DESCRIPTION,
        exception_handlers=dict.fromkeys(errors, handle_error),
        redirect_slashes=False,
    )
    quota_display = QuotaDisplay(quotas(settings), admission.limiter)
    callers = Callers(KeyRing(settings.api_keys_file), quota_display)
    keyed = _key_dependencies(callers)
    limits = OcrLimits(
        max_body_bytes=int(settings.max_body_megabytes * _MEGA),
        max_instruction_chars=settings.max_instruction_chars,
        max_timeout_s=settings.batch_timeout_s,
    )
    app.include_router(OcrRoutes(pipeline, limits).router, dependencies=keyed)
    if isinstance(engine, VllmEngine):
        openai = OpenAiRoutes(
            pipeline,
            engine,
            callers=callers,
            max_image_megapixels=settings.max_image_megapixels,
            timeouts_s={priority: admission.timeout_s(priority, None) for priority in Priority},
        )
        app.router.routes += openai.routes

    def options(tenant: str) -> dict[str, Any]:
        return {
            **_options(settings, engine),
            "quotas": quota_display.options(tenant),
            "classes": {priority: _class_options(admission, priority) for priority in Priority},
        }

    app.include_router(options_router(options), dependencies=keyed)
    install_openapi(app, chat=isinstance(engine, VllmEngine))
    return app


def _key_dependencies(callers: Callers) -> list[Any]:
    """Check the caller's key before the body is read; both header forms are documented."""

    async def authenticate(request: Request) -> None:
        callers.identify(request.scope)

    schemes = (HTTPBearer(auto_error=False), APIKeyHeader(name="X-API-Key", auto_error=False))
    return [Depends(dependency) for dependency in (*schemes, authenticate)]


def _options(settings: Settings, engine: Engine) -> dict[str, Any]:
    capabilities = engine.capabilities
    return {
        "engine": capabilities.engine,
        "model": capabilities.model,
        "tasks": sorted(capabilities.tasks),
        "inputs": [kind.value for kind in READABLE],
        "answers": list(FORMATS),
        "limits": {
            "max_body_megabytes": settings.max_body_megabytes,
            "max_image_megapixels": settings.max_image_megapixels,
            "max_pages": settings.max_pages,
            "max_instruction_chars": settings.max_instruction_chars,
            "body_timeout_s": settings.body_timeout_s,
            "max_timeout_s": settings.batch_timeout_s,
        },
    }


def _class_options(admission: AdmissionControl, priority: Priority) -> dict[str, Any]:
    """What a class gives, and how full it is now."""
    return {
        "default_timeout_s": admission.timeout_s(priority, None),
        "pages_waiting": admission.admission.waiting(priority),
        "queue_fullness": round(admission.admission.fullness(priority), 3),
    }


def _body_budget(settings: Settings, metrics: Metrics) -> ByteBudget:
    budget = ByteBudget(int(settings.max_bodies_megabytes * _MEGA))
    metrics.body_bytes.set_function(lambda: budget.held)
    return budget


async def _observe_lag(metrics: Metrics) -> None:
    loop = asyncio.get_running_loop()
    metrics.loop_tasks.set_function(lambda: len(asyncio.all_tasks(loop)))
    while True:
        due = loop.time() + _LAG_PERIOD_S
        await asyncio.sleep(_LAG_PERIOD_S)
        metrics.loop_lag_seconds.observe(max(0.0, loop.time() - due))


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
