"""The control socket's application: what changes the state of a running service."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from hunyuan_ocr.traffic.drain import Drainer
from hunyuan_ocr.traffic.engine_guard import EngineGuard

_PROGRESS_PERIOD_S = 1.0


def control_app(
    drainer: Drainer, propagation_s: float, pages: Callable[[], int], guard: EngineGuard
) -> Starlette:
    """For the Unix socket that only this service's own command line uses.

    POST /drain begins a drain or joins the one that runs, and answers a line of JSON a second:
    `phase`, the `requests` in flight and their `pages` begun. The last has the phase `drained`.
    GET /breaker answers how the breaker is, POST /breaker/open and /breaker/close change it first.
    """

    def line() -> str:
        state = {"phase": drainer.phase, "requests": drainer.requests, "pages": pages()}
        return json.dumps(state) + "\n"

    async def progress() -> AsyncIterator[str]:
        yield line()
        while not await drainer.wait(_PROGRESS_PERIOD_S):
            yield line()
        yield line()

    async def drain(request: Request) -> Response:
        drainer.begin(propagation_s)
        return StreamingResponse(progress(), media_type="application/x-ndjson")

    async def breaker(request: Request) -> Response:
        return JSONResponse(asdict(guard.state))

    async def open_breaker(request: Request) -> Response:
        guard.open(request.query_params.get("why") or "opened by hand")
        return await breaker(request)

    async def close_breaker(request: Request) -> Response:
        guard.close()
        return await breaker(request)

    return Starlette(
        routes=[
            Route("/drain", drain, methods=["POST"]),
            Route("/breaker", breaker, methods=["GET"]),
            Route("/breaker/open", open_breaker, methods=["POST"]),
            Route("/breaker/close", close_breaker, methods=["POST"]),
        ]
    )
