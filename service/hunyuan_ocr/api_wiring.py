"""The wiring of the HTTP edge: routes, and what every request passes on its way to them."""

from __future__ import annotations

import time
from typing import Any, get_args

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.security import APIKeyHeader, HTTPBearer
from opentelemetry.trace import TracerProvider
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from hunyuan_ocr.api.callers import Callers, Door
from hunyuan_ocr.api.drain import ConnectionEnds, DrainGate
from hunyuan_ocr.api.formats import FORMATS
from hunyuan_ocr.api.keys import KeyRing
from hunyuan_ocr.api.live import ClientGone
from hunyuan_ocr.api.middleware import BodyLimits, RequestScope
from hunyuan_ocr.api.ocr import OcrLimits, OcrRoutes
from hunyuan_ocr.api.openai import OpenAiRoutes
from hunyuan_ocr.api.openapi import install_openapi
from hunyuan_ocr.api.ops import options_router
from hunyuan_ocr.api.problems import handle_error
from hunyuan_ocr.api.rate_limit import QuotaDisplay
from hunyuan_ocr.documents import bundled
from hunyuan_ocr.documents.document import DocumentKind, Orient
from hunyuan_ocr.engines.base import Engine
from hunyuan_ocr.engines.vllm import VllmEngine
from hunyuan_ocr.errors import OcrError
from hunyuan_ocr.fallback import Documents
from hunyuan_ocr.settings import Settings
from hunyuan_ocr.telemetry.metrics import Metrics
from hunyuan_ocr.telemetry.usage_records import UsageRecords
from hunyuan_ocr.traffic.admission_control import AdmissionControl
from hunyuan_ocr.traffic.byte_budget import ByteBudget
from hunyuan_ocr.traffic.classes import Priority
from hunyuan_ocr.traffic.drain import Drain
from hunyuan_ocr.traffic_wiring import quotas
from hunyuan_ocr.way_wiring import Way

_MEGA = 1_000_000
# Both forms of a key, as the documentation shows them.
_KEY_SCHEMES = [
    Depends(HTTPBearer(auto_error=False)),
    Depends(APIKeyHeader(name="X-API-Key", auto_error=False)),
]
_DESCRIPTION = (
    "Reads the text out of images and documents. Errors are problem+json with a stable `code`."
)


def build_routes(
    version: str,
    settings: Settings,
    documents: Documents,
    usual: Way,
    callers: Callers,
) -> FastAPI:
    engine, admission = usual.engine, usual.admission
    errors: tuple[type[Exception], ...] = (
        OcrError,
        RequestValidationError,
        HTTPException,
        ClientGone,
        Exception,
    )
    app = FastAPI(
        title="hunyuan-ocr",
        version=version,
        description=_DESCRIPTION,
        exception_handlers=dict.fromkeys(errors, handle_error),
        redirect_slashes=False,
    )
    limits = OcrLimits(
        max_body_bytes=int(settings.max_body_megabytes * _MEGA),
        max_instruction_chars=settings.max_instruction_chars,
        max_timeout_s=settings.batch_timeout_s,
    )
    # Whoever posts pages was identified at the door: these document how.
    app.include_router(OcrRoutes(documents, limits).router, dependencies=_KEY_SCHEMES)
    if isinstance(engine, VllmEngine):
        openai = OpenAiRoutes(
            usual.pipeline,
            engine,
            callers=callers,
            max_image_megapixels=settings.max_image_megapixels,
            timeouts_s={priority: admission.timeout_s(priority, None) for priority in Priority},
        )
        app.router.routes += openai.routes

    def options(tenant: str) -> dict[str, Any]:
        return {
            **_options(settings, engine),
            "quotas": callers.quotas.options(tenant),
            "classes": {priority: _class_options(admission, priority) for priority in Priority},
        }

    keyed = [*_KEY_SCHEMES, Depends(callers.authenticate)]
    app.include_router(options_router(options), dependencies=keyed)
    install_openapi(app, chat=isinstance(engine, VllmEngine))
    return app


def build_callers(settings: Settings, admission: AdmissionControl) -> Callers:
    quota_display = QuotaDisplay(quotas(settings), admission.limiter)
    return Callers(KeyRing(settings.api_keys_file), quota_display)


def surrounded(
    routes: ASGIApp,
    settings: Settings,
    metrics: Metrics,
    traces: TracerProvider,
    drain: Drain,
    documents: Documents,
    usual: Way,
    callers: Callers,
    usage_records: UsageRecords,
) -> ASGIApp:
    """The routes and what every request passes on its way to them, the outermost last."""
    limited = BodyLimits(
        routes,
        max_bytes=int(settings.max_body_megabytes * _MEGA),
        timeout_s=settings.body_timeout_s,
        budget=_body_budget(settings, metrics),
    )
    # What is passed through has no other way than the usual one.
    chat = usual.pipeline.check
    door = Door(limited, callers=callers, check=documents.check, check_chat=chat)
    scoped = RequestScope(
        DrainGate(door, drain),
        metrics=metrics,
        tracer=traces.get_tracer("hunyuan_ocr"),
        usage_records=usage_records,
        clock=time.monotonic,
    )
    return ConnectionEnds(scoped, drain)


def _options(settings: Settings, engine: Engine) -> dict[str, Any]:
    capabilities = engine.capabilities
    return {
        "engine": capabilities.engine,
        "model": capabilities.model,
        "tasks": sorted(capabilities.tasks),
        "inputs": [kind.value for kind in DocumentKind],
        "answers": list(FORMATS),
        "orient": [turn for turn in get_args(Orient) if turn != "auto" or bundled.installed()],
        "blank_pages_told": bundled.installed(),
        "detail": {
            detail: round(pixels / _MEGA, 2) for detail, pixels in capabilities.max_pixels.items()
        },
        "limits": {
            "max_body_megabytes": settings.max_body_megabytes,
            "max_image_megapixels": settings.max_image_megapixels,
            "max_pages": settings.max_pages,
            "max_tiles": settings.max_tiles,
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
    metrics.requests.body_bytes.set_function(lambda: budget.held)
    return budget
