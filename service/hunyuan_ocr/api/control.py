"""The control socket's application: what changes the state of a running service."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from hunyuan_ocr.traffic.drain import Drainer

_PROGRESS_PERIOD_S = 1.0


def control_app(drainer: Drainer, propagation_s: float, pages: Callable[[], int]) -> Starlette:
    """For the Unix socket that only this service's own command line uses.

    POST /drain begins a drain or joins the one that runs, and answers a line of JSON a second:
    `phase`, the `requests` in flight and their `pages` begun. The last has the phase `drained`.
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

    return Starlette(routes=[Route("/drain", drain, methods=["POST"])])
