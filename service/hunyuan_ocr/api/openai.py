"""OpenAI's chat API, passed through to vLLM under the same limits as everything else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientResponse
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from hunyuan_ocr.api.callers import Callers, class_of_chat
from hunyuan_ocr.api.context import RequestContext, context_of
from hunyuan_ocr.api.formats import EVENT_STREAM, JSON
from hunyuan_ocr.api.intake import parse_json, whole_body
from hunyuan_ocr.api.live import LiveAnswer
from hunyuan_ocr.api.problems import openai_error
from hunyuan_ocr.engine_turns import PassedThrough, Passing
from hunyuan_ocr.engines.base import TokenUsage
from hunyuan_ocr.engines.vllm import VllmEngine
from hunyuan_ocr.engines.vllm_http import refused
from hunyuan_ocr.errors import (
    BadRequest,
    EmptyBody,
    ImageTooLarge,
    NotFound,
    OcrError,
)
from hunyuan_ocr.pipeline import Pipeline
from hunyuan_ocr.tasks.chat import SafeChat, made_safe
from hunyuan_ocr.telemetry.stages import Stage
from hunyuan_ocr.traffic.classes import Priority

_USAGE = re.compile(rb'"prompt_tokens":\s*(\d+)[^{}]*?"completion_tokens":\s*(\d+)')
_FINISH_REASON = re.compile(rb'"finish_reason":\s*"([a-z_]{1,32})"')
_USAGE_TAIL_BYTES = 2048
_EVENT = b"data: "
_MESSAGE_CHARS_MAX = 500


class OpenAiRoutes:
    """The chat routes over one vLLM engine.

    Chat is the route that is called most and does least here, so it is a bare ASGI endpoint:
    the framework's own handling of a request would cost more than all of ours.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        engine: VllmEngine,
        *,
        callers: Callers,
        max_image_megapixels: float,
        timeouts_s: Mapping[Priority, float],
    ) -> None:
        self._pipeline = pipeline
        self._engine = engine
        self._callers = callers
        self._max_image_megapixels = max_image_megapixels
        self._timeouts_s = timeouts_s
        self.routes = (
            _route("POST", "/v1/chat/completions", self._complete),
            _route("GET", "/v1/models", self._list_models),
        )

    async def _list_models(self, request: Request) -> Response:
        self._callers.identify(request.scope)
        model = self._engine.capabilities.model
        card = {"id": model, "object": "model", "owned_by": "hunyuan-ocr"}
        return JSONResponse({"object": "list", "data": [card]})

    async def _complete(self, request: Request) -> Response:
        context = context_of(request.scope)
        (priority,) = class_of_chat(request)
        with context.stages.stage(Stage.RECEIVE):
            asked = await _json_body(request)
        with context.stages.stage(Stage.INSPECT):
            chat = self._checked(asked)
        time_left_s = self._timeouts_s[priority] - context.elapsed_s()
        tokens, patches = self._engine.visual_work(chat)
        turn = PassedThrough(
            tenant=context.tenant,
            priority=priority,
            deadline=asyncio.get_running_loop().time() + time_left_s,
            visual_tokens=tokens,
            vit_patches=patches,
            max_output_tokens=_max_output_tokens(chat.body),
            judged="response_format" not in chat.body,  # a grammar may take long to compile
        )
        return ForwardedChat(self._pipeline, self._engine, chat, turn, time_left_s)

    def _checked(self, asked: object) -> SafeChat:
        chat = made_safe(asked, self._engine.capabilities.generation)
        if chat.image is not None:
            if chat.image.size.megapixels > self._max_image_megapixels:
                raise ImageTooLarge(f"the limit is {self._max_image_megapixels:g} megapixels")
            self._engine.check_image(chat.image.size)
        return chat


class _Endpoint:
    """An ASGI application from a function of a request."""

    def __init__(self, path: str, answer: Callable[[Request], Awaitable[Response]]) -> None:
        self.path = path
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self  # whose path is the label of metrics and log lines
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)


def _route(method: str, path: str, answer: Callable[[Request], Awaitable[Response]]) -> Route:
    return Route(path, _Endpoint(path, answer), methods=[method])


async def _json_body(request: Request) -> object:
    if body := await whole_body(request):
        return parse_json(body)
    raise EmptyBody


class ForwardedChat(LiveAnswer):
    """The engine's answer, byte for byte as it comes."""

    def __init__(
        self,
        pipeline: Pipeline,
        engine: VllmEngine,
        chat: SafeChat,
        turn: PassedThrough,
        time_left_s: float,
    ) -> None:
        self._streamed = chat.body.get("stream") is True
        super().__init__(EVENT_STREAM if self._streamed else JSON, time_left_s)
        self._pipeline = pipeline
        self._engine = engine
        self._chat = chat
        self._turn = turn

    async def _respond(self, context: RequestContext, send: Send) -> None:
        await (self._stream if self._streamed else self._send_whole)(context, send)

    @asynccontextmanager
    async def _asked(
        self, context: RequestContext
    ) -> AsyncIterator[tuple[Passing, ClientResponse]]:
        """Hold the engine, and its answer that is still to come."""
        async with (
            self._pipeline.turns.passed_through(self._turn, context.stages) as passing,
            self._engine.forward(self._chat, context.request_id) as (upstream, call),
        ):
            if upstream.status != 200:
                raise _refused(upstream.status, await self._engine.http.read_all(upstream))
            yield passing, upstream
            if passing.usage is not None:
                call.finished(passing.usage.prompt, passing.usage.output, passing.finish_reason)

    async def _send_whole(self, context: RequestContext, send: Send) -> None:
        async with self._asked(context) as (passing, upstream):
            data = await self._engine.http.read_all(upstream)
            _tell(passing, data)
        # The engine is others' by now, however slowly this client reads.
        await send(self._start(len(data)))
        await send({"type": "http.response.body", "body": data, "more_body": False})

    async def _stream(self, context: RequestContext, send: Send) -> None:
        """Once it has begun, a failure can only be told in the stream, as vLLM itself does."""
        begun = False
        try:
            async with self._asked(context) as (passing, upstream):
                begun, tail = True, b""
                with passing.taker.takes():
                    await send(self._start(None))
                try:
                    while data := await self._engine.http.read_some(upstream):
                        tail = (tail + data)[-_USAGE_TAIL_BYTES:]
                        passing.pieces += data.count(_EVENT)
                        piece = {"type": "http.response.body", "body": data, "more_body": True}
                        with passing.taker.takes():
                            await send(piece)
                finally:  # also to a client that left, the engine may have told its count
                    _tell(passing, tail)
        except OcrError as error:
            if not begun:
                raise
            context.code = error.code
            event = to_json({"error": openai_error(error)})
            body = b"data: " + event + b"\n\n"
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _tell(passing: Passing, answer: bytes) -> None:
    """What the engine counted, which stands at the end of its answer where it was asked for, and
    why the answer ended."""
    if counts := _USAGE.findall(answer):
        passing.usage = TokenUsage(*map(int, counts[-1]))
    if reasons := _FINISH_REASON.findall(answer):
        passing.finish_reason = reasons[-1].decode()


def _max_output_tokens(body: Mapping[str, Any]) -> int | None:
    """The caller's limit; the engine refuses what is none."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    return limit if isinstance(limit, int) and limit > 0 else None


def _refused(status: int, answer: bytes) -> Exception:
    """The engine's refusal of what the caller asked for, in the engine's own words."""
    if status == 404:
        return NotFound("the engine does not serve that model; see /v1/models")
    if status >= 500 or status == 429:
        return refused(status)
    try:
        message = str(from_json(answer)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the engine answered {status}"
    return BadRequest(message[:_MESSAGE_CHARS_MAX])
