"""OpenAI's chat API, passed through to vLLM under the same limits as everything else."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic_core import from_json, to_json
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from hunyuan_ocr.api.context import RequestContext, context_of
from hunyuan_ocr.api.disconnect import ClientGone, unless_gone
from hunyuan_ocr.api.formats import EVENT_STREAM, JSON
from hunyuan_ocr.engines.base import TokenUsage
from hunyuan_ocr.engines.vllm import VllmEngine
from hunyuan_ocr.errors import (
    BadRequest,
    DeadlineExceeded,
    EmptyBody,
    EngineUnavailable,
    ImageTooLarge,
    MalformedJson,
    NotFound,
)
from hunyuan_ocr.pipeline import Pipeline
from hunyuan_ocr.tasks.chat import made_safe
from hunyuan_ocr.telemetry.stages import Stage

_USAGE = re.compile(rb'"prompt_tokens":\s*(\d+).*?"completion_tokens":\s*(\d+)', re.DOTALL)
_USAGE_TAIL_BYTES = 2048
_MESSAGE_CHARS_MAX = 500


class OpenAiRoutes:
    """The chat routes over one vLLM engine."""

    def __init__(
        self,
        pipeline: Pipeline,
        engine: VllmEngine,
        *,
        max_image_megapixels: float,
        timeout_s: float,
    ) -> None:
        self._pipeline = pipeline
        self._engine = engine
        self._max_image_megapixels = max_image_megapixels
        self._timeout_s = timeout_s
        self.router = APIRouter(tags=["openai"])
        self.router.add_api_route("/v1/models", self.models, methods=["GET"])
        self.router.add_api_route(
            "/v1/chat/completions",
            self.chat,
            methods=["POST"],
            response_model=None,
            openapi_extra={
                "requestBody": {
                    "required": True,
                    "content": {JSON: {"schema": {"type": "object"}}},
                }
            },
        )

    async def models(self) -> dict[str, Any]:
        """The model that the engine serves."""
        capabilities = self._engine.capabilities
        card = {"id": capabilities.model, "object": "model", "owned_by": "hunyuan-ocr"}
        return {"object": "list", "data": [card]}

    async def chat(self, request: Request) -> Response:
        """Chat completions as OpenAI's clients ask for them, one image a request."""
        context = context_of(request.scope)
        with context.stages.stage(Stage.RECEIVE):
            try:
                body = await request.body()
            except ClientDisconnect:
                raise ClientGone from None
            if not body:
                raise EmptyBody
            try:
                asked = from_json(body)
            except ValueError:
                raise MalformedJson from None
        with context.stages.stage(Stage.INSPECT):
            forwarded, streamed = self._safe_body(asked)
        return ForwardedChat(self._pipeline, self._engine, forwarded, streamed, self._timeout_s)

    def _safe_body(self, asked: Any) -> tuple[bytes, bool]:
        capabilities = self._engine.capabilities
        chat = made_safe(asked, capabilities.generation, capabilities.max_output_tokens)
        if chat.image is not None:
            if chat.image.megapixels > self._max_image_megapixels:
                raise ImageTooLarge(f"the limit is {self._max_image_megapixels:g} megapixels")
            self._engine.check_image(chat.image)
        chat.body.setdefault("model", capabilities.model)
        return to_json(chat.body), chat.body.get("stream") is True


class ForwardedChat(Response):
    """The engine's answer, byte for byte as it comes; dropped when the client leaves."""

    def __init__(
        self, pipeline: Pipeline, engine: VllmEngine, body: bytes, streamed: bool, timeout_s: float
    ) -> None:
        super().__init__(media_type=EVENT_STREAM if streamed else JSON)
        self._pipeline = pipeline
        self._engine = engine
        self._forwarded = body
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        try:
            await unless_gone(receive, self._within_time(context, send))
        except ClientGone:
            context.cancelled = True

    async def _within_time(self, context: RequestContext, send: Send) -> None:
        try:
            async with asyncio.timeout(self._timeout_s - context.elapsed_s()):
                async with self._pipeline.turn(context.stages):
                    await self._forward(context, send)
        except TimeoutError:
            raise DeadlineExceeded from None

    async def _forward(self, context: RequestContext, send: Send) -> None:
        tail = b""
        async with self._engine.forward(self._forwarded, context.request_id) as upstream:
            if upstream.status != 200:
                raise _refused(upstream.status, await upstream.read())
            headers = MutableHeaders({"content-type": self.headers["content-type"]})
            if (length := upstream.headers.get("content-length")) is not None:
                headers["content-length"] = length
            start = {"type": "http.response.start", "status": 200, "headers": headers.raw}
            await send(start)
            while data := await self._engine.http.read_some(upstream):
                tail = (tail + data)[-_USAGE_TAIL_BYTES:]
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        if usage := _USAGE.search(tail):
            self._pipeline.count_tokens(TokenUsage(int(usage[1]), int(usage[2])))


def _refused(status: int, answer: bytes) -> Exception:
    """The engine's refusal of what the caller asked for, in the engine's own words."""
    if status == 404:
        return NotFound("the engine does not serve that model; see /v1/models")
    if status >= 500 or status == 429:
        return EngineUnavailable(f"the engine answered {status}", retry_after_s=2.0)
    try:
        message = str(from_json(answer)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the engine answered {status}"
    return BadRequest(message[:_MESSAGE_CHARS_MAX])
