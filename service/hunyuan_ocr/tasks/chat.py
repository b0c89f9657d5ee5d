"""Chat requests of callers, made safe to pass on to the engine.

The bytes of the image travel untouched. What is touched: special tokens in text, missing sampling
fields, and members that would let a caller jump the queue or change how images are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pybase64

from hunyuan_ocr.documents import header
from hunyuan_ocr.documents.document import PageSize
from hunyuan_ocr.documents.sniff import sniff
from hunyuan_ocr.errors import (
    InvalidBase64,
    InvalidField,
    TooManyPages,
    UnsupportedFormat,
    UrlRefused,
)
from hunyuan_ocr.tasks.catalogue import Generation
from hunyuan_ocr.tasks.extract import schema_problems
from hunyuan_ocr.tasks.sampling import SAMPLING
from hunyuan_ocr.tasks.special_tokens import neutralise, neutralise_json

# Members that are passed on: OpenAI's, and vLLM's for sampling. Not `logprobs` and not
# `structured_outputs`: the first makes vLLM compile for half a minute, grammars can take as long,
# and everybody waits meanwhile.
_PASSED = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "stop", "seed"),
        *("max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty", "repetition_detection"),
        "response_format",
    }
)
# Members that OpenAI's clients send and that mean nothing to one engine on one GPU.
_DROPPED = frozenset(
    {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "n"}
)
# Has the shape of a special token, which `neutralise` lets stand nowhere in a caller's text.
IMAGE = "<｜image｜>"
_ONE_PAGE = header.Limits(max_megapixels=float("inf"), max_pages=1)


@dataclass(frozen=True, slots=True)
class ChatImage:
    """An image as it was sent: its base64 digits, all valid, its format and its upright size."""

    digits: bytes
    media_type: str
    size: PageSize


@dataclass(frozen=True, slots=True)
class SafeChat:
    """A request that may be passed on; IMAGE stands in `body` where `image` belongs.

    `text_bytes` is the size of all its text in UTF-8.
    """

    body: dict[str, Any]
    image: ChatImage | None
    text_bytes: int


def made_safe(request: object, generation: Generation) -> SafeChat:
    """Check a decoded chat request and fill in what it leaves open.

    Raises InvalidField, UrlRefused, and the errors of reading an image's header.
    """
    if not isinstance(request, dict):
        raise InvalidField("the body is not an object")
    if unknown := sorted(set(request) - _PASSED - _DROPPED):
        raise InvalidField(f"not taken here: {', '.join(map(neutralise, unknown))[:200]}")
    if request.get("n") not in (None, 1):
        raise InvalidField("`n` other than 1 is not taken")
    if not isinstance(request.get("stream", False), bool):
        raise InvalidField("`stream` is true or false")
    _check_response_format(request.get("response_format"))
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidField("`messages` is not a list with a message in it")
    urls = [url for message in messages for url in _image_urls(message)]
    if len(urls) > 1:
        raise InvalidField("one request takes one image")
    body = {key: value for key, value in request.items() if key in _PASSED and key != "messages"}
    safe_messages = [_safe_message(message) for message in messages]
    return SafeChat(
        body=SAMPLING[generation] | _as_dict(neutralise_json(body)) | {"messages": safe_messages},
        image=_image(urls[0]) if urls else None,
        text_bytes=sum(map(_text_bytes, safe_messages)),
    )


def _text_bytes(message: dict[str, Any]) -> int:
    content = message["content"]
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return sum(len(text.encode()) for text in texts)


def _check_response_format(wanted: object) -> None:
    match wanted:
        case None | {"type": "text" | "json_object"}:
            return
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            if problems := schema_problems(schema):
                raise InvalidField(f"response_format: {problems[0]}")
        case _:
            raise InvalidField("`response_format` is a text, a json_object or a json_schema")


def _image_urls(message: object) -> Iterator[str]:
    for part in _parts(message):
        match part:
            case {"type": "text", "text": str()}:
                continue
            case {"type": "image_url", "image_url": {"url": str(url)}} if _is_users(message):
                if not url.startswith("data:"):
                    raise UrlRefused("images are taken as base64 `data:` URLs only")
                yield url
            case _:
                raise InvalidField("a part is neither a text nor an `image_url` of the user's")


def _is_users(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") == "user"


def _parts(message: object) -> list[object]:
    match message:
        case {"role": str(), "content": str()}:
            return []
        case {"role": str(), "content": list(parts)}:
            return parts
        case _:
            raise InvalidField("a message lacks a `role` and a `content` of text or parts")


def _safe_message(message: dict[str, Any]) -> dict[str, Any]:
    """Only role and content: other members would reach the chat template."""
    content = message["content"]
    safe = neutralise(content) if isinstance(content, str) else list(map(_safe_part, content))
    return {"role": neutralise(message["role"]), "content": safe}


def _safe_part(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": neutralise(part["text"])}
    return {"type": "image_url", "image_url": {"url": IMAGE}}


def _image(url: str) -> ChatImage:
    start, comma, digits = url.partition(",")
    if not comma or not start.endswith(";base64"):
        raise InvalidBase64("a `data:` URL says `;base64,` before its data")
    try:
        encoded = digits.encode("ascii")
        data = pybase64.b64decode(encoded, validate=True)
    except ValueError:
        raise InvalidBase64 from None
    kind = sniff(data)
    try:
        (frame,) = header.read_frames(kind, data, _ONE_PAGE)
    except TooManyPages:
        raise UnsupportedFormat("chat takes images of one page") from None
    return ChatImage(encoded, kind.value, frame.upright)


def _as_dict(value: object) -> dict[str, Any]:
    assert isinstance(value, dict)  # noqa: S101 - neutralise_json keeps the type
    return value
