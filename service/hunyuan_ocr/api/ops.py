"""What operators and callers ask about the service: options, probes, metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hunyuan_ocr.api.context import context_of
from hunyuan_ocr.engines.base import Engine
from hunyuan_ocr.errors import EngineUnavailable, Unavailable
from hunyuan_ocr.telemetry.metrics import Metrics

# What vLLM's metrics are in: prometheus_client's text format.
_ENGINE_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def options_router(options: Callable[[str], dict[str, Any]]) -> APIRouter:
    """GET /v1/options."""
    router = APIRouter(tags=["service"])

    @router.get("/v1/options")
    async def read_options(request: Request) -> dict[str, Any]:
        """Tasks, formats, limits and the caller's own, and the engine in use."""
        return options(context_of(request.scope).tenant)

    return router


def management_app(
    metrics: Metrics,
    engine: Engine,
    *,
    refusal: Callable[[], Unavailable | None],
    hung_limit_s: float,
) -> Starlette:
    """The management port: GET only, for kubelet and Prometheus, never for callers.

    `refusal` says why this service is unready, `hung_limit_s` how long an engine may be dead or
    hung before it must be restarted.
    """

    async def livez(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(request: Request) -> Response:
        reason = refusal()
        if reason is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "unready", "reason": reason.detail}, reason.status)

    async def scrape(request: Request) -> Response:
        try:
            encode, media_type = choose_encoder(request.headers.get("accept", ""))
        except (TypeError, ValueError):  # a version that is no number
            encode, media_type = choose_encoder("")
        return Response(encode(metrics.registry), media_type=media_type)

    return Starlette(
        routes=[
            Route("/livez", livez, methods=["GET"]),
            Route("/readyz", readyz, methods=["GET"]),
            Route("/metrics", scrape, methods=["GET"]),
            *_engine_routes(engine, hung_limit_s),
        ]
    )


def _engine_routes(engine: Engine, hung_limit_s: float) -> tuple[Route, ...]:
    """Probes and metrics of an engine in a container that nobody else reaches."""

    async def startz(request: Request) -> Response:
        health = engine.health()
        if health.answers:
            return JSONResponse({"status": "up"})
        return JSONResponse({"status": "starting", "reason": health.reason}, 503)

    async def livez(request: Request) -> Response:
        health = engine.health()
        if health.dead_for_s < hung_limit_s:
            return JSONResponse({"status": "ok"})
        reason = f"for {health.dead_for_s:.0f} s: {health.reason}"
        return JSONResponse({"status": "dead", "reason": reason}, 503)

    async def scrape(request: Request) -> Response:
        try:
            text = await engine.scrape()
        except EngineUnavailable as error:
            return JSONResponse({"status": "unavailable", "reason": error.detail}, error.status)
        if text is None:
            reason = f"the {engine.capabilities.engine} engine has no metrics beside /metrics"
            return JSONResponse({"status": "none", "reason": reason}, 404)
        return Response(text, media_type=_ENGINE_METRICS_TYPE)

    return (
        Route("/engine/startz", startz, methods=["GET"]),
        Route("/engine/livez", livez, methods=["GET"]),
        Route("/metrics/engine", scrape, methods=["GET"]),
    )
