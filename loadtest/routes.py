"""A route's requests and how its answers are judged, without a socket."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from loadtest.outcomes import Outcome, Reply
from loadtest.pages import Page

MODEL = "hunyuan-ocr"
PROMPT = "提取图中的文字。"
_BUSY = (429, 503)
_CODE_CHARS_MAX = 40


class Route(StrEnum):
    OCR = "/ocr"
    V1_OCR = "/v1/ocr"
    CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Request:
    body: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Chat:
    """What a chat request says beside its page. `more`: further members of the body."""

    model: str = MODEL
    more: dict[str, Any] = field(default_factory=dict)


def build(route: Route, page: Page, chat: Chat) -> Request:
    """The request that sends `page` to `route`."""
    if route is Route.V1_OCR:
        return Request(page.content, page.media_type)
    encoded = base64.b64encode(page.content).decode()
    if route is Route.OCR:
        return Request(json.dumps({"image": encoded}).encode(), "application/json")
    image = {"type": "image_url", "image_url": {"url": f"data:{page.media_type};base64,{encoded}"}}
    messages = [
        {"role": "system", "content": ""},
        {"role": "user", "content": [image, {"type": "text", "text": PROMPT}]},
    ]
    body = {"model": chat.model, "messages": messages, "temperature": 0, **chat.more}
    return Request(json.dumps(body).encode(), "application/json")


def judge(route: Route, status: int, body: bytes, retry_after: str | None) -> Reply:
    """What an answer that came whole means, streamed ones aside."""
    content = _json(body)
    if status != 200:
        code = _code(content) or str(status)
        outcome = Outcome.REFUSED if status in _BUSY else Outcome.FAILED
        return Reply(outcome, code, retry_after_s=_seconds(retry_after))
    if not isinstance(content, dict):
        return Reply(Outcome.FAILED, "no JSON")
    return _judge_pages(content) if route is Route.V1_OCR else _judge_text(route, content)


def _judge_text(route: Route, content: dict[str, Any]) -> Reply:
    try:
        text = (
            content["text"] if route is Route.OCR else content["choices"][0]["message"]["content"]
        )
    except (KeyError, IndexError, TypeError):
        text = None
    if not isinstance(text, str):
        return Reply(Outcome.FAILED, "no text")
    return Reply(Outcome.ANSWERED, degraded=bool(content.get("degraded")))


def _judge_pages(content: dict[str, Any]) -> Reply:
    """Of several pages, the first that failed."""
    pages = content.get("pages")
    if not isinstance(pages, list) or not pages or not all(isinstance(p, dict) for p in pages):
        return Reply(Outcome.FAILED, "no pages")
    for page in pages:
        if error := page.get("error"):
            return Reply(Outcome.FAILED, _code(error) or "page error")
    return Reply(Outcome.ANSWERED, degraded=any(page.get("degraded") for page in pages))


def has_text(line: bytes) -> bool:
    """Whether a line of an event stream brings some of the text. Raises StreamedError."""
    if not line.startswith(b"data: {"):
        return False
    chunk = _json(line[6:])
    if not isinstance(chunk, dict):
        return False
    if "error" in chunk:
        raise StreamedError(_code(chunk) or "stream error")
    try:
        return any(choice["delta"].get("content") for choice in chunk["choices"])
    except (KeyError, TypeError, AttributeError):
        return False


class StreamedError(Exception):
    """A stream said that it failed; the message is the code."""


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _code(content: Any) -> str:
    """Of a problem document, or of OpenAI's kind of error."""
    if not isinstance(content, dict):
        return ""
    inner = content.get("error")
    found = content.get("code") or (
        isinstance(inner, dict) and (inner.get("code") or inner.get("type"))
    )
    return str(found)[:_CODE_CHARS_MAX] if found else ""


def _seconds(retry_after: str | None) -> float | None:
    """A date instead of seconds is not followed."""
    try:
        return max(0.0, float(retry_after)) if retry_after else None
    except ValueError:
        return None
