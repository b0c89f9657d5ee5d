"""What operators and callers ask about the service: options, probes, metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hunyuan_ocr.errors import Unavailable
from hunyuan_ocr.telemetry.metrics import Metrics


def options_router(options: Callable[[], dict[str, Any]]) -> APIRouter:
    """GET /v1/options."""
    router = APIRouter(tags=["service"])

    @router.get("/v1/options")
    async def read_options() -> dict[str, Any]:
        """Tasks, formats, limits, and the engine in use."""
        return options()

    return router


def management_app(metrics: Metrics, refusal: Callable[[], Unavailable | None]) -> Starlette:
    """The management port: GET only, for kubelet and Prometheus, never for callers."""

    async def livez(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(request: Request) -> Response:
        reason = refusal()
        if reason is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "unready", "reason": reason.detail}, reason.status)

    async def scrape(request: Request) -> Response:
        text = generate_latest(metrics.registry)  # type: ignore[no-untyped-call]
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[
            Route("/livez", livez, methods=["GET"]),
            Route("/readyz", readyz, methods=["GET"]),
            Route("/metrics", scrape, methods=["GET"]),
        ]
    )
