"""The gateway that is written first: FastAPI, httpx and a semaphore; no check, no limit, no log.

ENGINE_URL=http://… uvicorn benchmarks.peers.semaphore_gateway:app
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI, Request, Response

_IN_FLIGHT = 16


@asynccontextmanager
async def _client(app: FastAPI) -> AsyncIterator[None]:
    async with httpx.AsyncClient(base_url=os.environ["ENGINE_URL"], timeout=600) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=_client)
gate = asyncio.Semaphore(_IN_FLIGHT)


@app.post("/v1/chat/completions")
async def chat(request: Request) -> Response:
    """Hand the body on and the answer back."""
    body = await request.body()
    async with gate:
        answer = await request.app.state.client.post(
            "/v1/chat/completions", content=body, headers={"Content-Type": "application/json"}
        )
    return Response(answer.content, answer.status_code, media_type="application/json")
