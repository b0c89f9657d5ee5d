"""The OpenAI chat format as vLLM speaks it: the request's bytes, the stream's events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pybase64

from hunyuan_ocr.engines.base import (
    NO_USAGE,
    EngineEvent,
    EngineRequest,
    Finished,
    FinishReason,
    TextDelta,
    TokenUsage,
)
from hunyuan_ocr.errors import EngineRejected, EngineUnavailable, InvalidField
from hunyuan_ocr.tasks.catalogue import Generation
from hunyuan_ocr.tasks.chat import IMAGE
from hunyuan_ocr.tasks.sampling import sampling

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "repetition": "repetition",
}
_IMAGE_MEMBER = f'"{IMAGE}"'.encode()


def request_body(
    request: EngineRequest, *, model: str, generation: Generation, max_tokens: int
) -> bytes:
    """The JSON of a streaming chat request: empty system message, image first, then the prompt."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": "system", "content": ""},
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": IMAGE}},
                    {"type": "text", "text": request.prompt},
                ],
            },
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": max_tokens,
        **sampling(generation, request.attempt),
    }
    if request.json_schema is not None:
        schema = {"name": "answer", "schema": request.json_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return with_image(body, pybase64.b64encode(request.image.data), request.image.media_type)


def with_image(body: dict[str, Any], digits: bytes, media_type: str) -> bytes:
    """The JSON of `body` with a `data:` URL of base64 `digits` where IMAGE stands.

    The digits are put in as they are: they need no escaping, and megabytes need no scanning.
    """
    before, after = json.dumps(body, ensure_ascii=False).encode().split(_IMAGE_MEMBER)
    return b"".join((before, f'"data:{media_type};base64,'.encode(), digits, b'"', after))


class ChatStream:
    """Turns the bytes of an SSE answer into engine events."""

    def __init__(self) -> None:
        self._rest = b""
        self._finish: FinishReason | None = None
        self._usage = NO_USAGE
        self.done = False

    def feed(self, data: bytes) -> Iterator[EngineEvent]:
        """Yield what `data` completes; after the last, `Finished`, `done` is true.

        Raises EngineUnavailable for an error that the engine sends in mid-stream.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield from self._event(line[5:].strip())

    def _event(self, payload: bytes) -> Iterator[EngineEvent]:
        if payload == b"[DONE]":
            if self._finish is not None:
                self.done = True
                yield Finished(self._finish, self._usage)
            return
        try:
            yield from self._chunk(json.loads(payload))
        except (ValueError, LookupError, TypeError, AttributeError):
            raise EngineUnavailable("the engine's answer is not understood") from None

    def _chunk(self, chunk: dict[str, Any]) -> Iterator[EngineEvent]:
        if "error" in chunk:
            # A request that vLLM refuses is told in the stream too, which it has begun with 200.
            if 400 <= int(chunk["error"]["code"]) < 500:
                raise EngineRejected
            raise EngineUnavailable("the engine failed while it was reading the page")
        if usage := chunk.get("usage"):
            self._usage = TokenUsage(usage["prompt_tokens"], usage["completion_tokens"])
        for choice in chunk.get("choices", ()):
            if text := choice["delta"].get("content"):
                yield TextDelta(text)
            if reason := choice.get("finish_reason"):
                self._finish = _finish_reason(reason)


def understood(chat: ChatStream, data: bytes, request: EngineRequest) -> Iterator[EngineEvent]:
    """The events in `data`. Raises InvalidField where the engine cannot follow a schema."""
    try:
        yield from chat.feed(data)
    except EngineRejected:
        if request.json_schema is None:
            raise
        raise InvalidField("json_schema: the engine cannot follow this schema") from None


def _finish_reason(reason: str) -> FinishReason:
    """Raises EngineUnavailable for an end that is none, such as `abort` and `error`."""
    if reason not in _FINISH:
        raise EngineUnavailable("the engine gave up on the page")
    return _FINISH[reason]
