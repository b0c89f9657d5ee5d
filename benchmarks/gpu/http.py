"""Requests to an engine, told as data: status, seconds, what came."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

PROMPT = "提取图中的文字。"
SAMPLING: dict[str, Any] = {
    "temperature": 0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "seed": 1234,
}  # fmt: skip


def get_status(port: int, path: str, timeout_s: float) -> int | None:
    """The status of a GET, None when nothing answers in time."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout_s) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, ValueError):
        return None


def body(
    image: bytes | None, *, text: str = PROMPT, system: str = "", kind: str = "png",
    image_first: bool = True, **rest: Any,
) -> bytes:  # fmt: skip
    """A chat completion's body."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if image is not None:
        url = f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
        parts.insert(0 if image_first else 1, {"type": "image_url", "image_url": {"url": url}})
    messages = [{"role": "system", "content": system}, {"role": "user", "content": parts}]
    return json.dumps({"model": "hunyuan-ocr", "messages": messages, **SAMPLING, **rest}).encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """`status` None: no answer; `error` then says how it ended."""

    status: int | None
    text: str
    error: str
    seconds: float
    first_token_s: float | None = None
    tokens: int = 0
    finish_reason: str | None = None


class Client:
    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def chat(self, content: bytes, timeout_s: float = 120.0) -> Answer:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                async with self._post(content) as response:
                    raw = await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            return Answer(None, "", repr(error)[:160], time.perf_counter() - began)
        seconds = time.perf_counter() - began
        if response.status != 200:
            return Answer(response.status, "", raw[:240], seconds)
        answer = json.loads(raw)
        choice = answer["choices"][0]
        return Answer(
            200, choice["message"]["content"] or "", "", seconds,
            tokens=answer["usage"]["completion_tokens"], finish_reason=choice["finish_reason"],
        )  # fmt: skip

    async def stream(self, content: bytes, timeout_s: float = 120.0) -> Answer:
        """`content` asks for a stream with usage. An error chunk is told in `error`."""
        began, first, tokens, finish, error, status = time.perf_counter(), None, 0, None, "", None
        text: list[str] = []
        try:
            async with asyncio.timeout(timeout_s):
                async with self._post(content) as response:
                    status = response.status
                    if status != 200:
                        error = (await response.text())[:240]
                    async for line in response.content:
                        if not line.startswith(b"data: {"):
                            continue
                        chunk = json.loads(line[6:])
                        if "error" in chunk:
                            error = json.dumps(chunk["error"])[:240]
                        if usage := chunk.get("usage"):
                            tokens = usage["completion_tokens"]
                        for choice in chunk.get("choices", ()):
                            delta = choice["delta"].get("content")
                            if delta:
                                text.append(delta)
                                first = first or time.perf_counter() - began
                            finish = choice.get("finish_reason") or finish
        except (aiohttp.ClientError, TimeoutError) as failure:
            error = error or repr(failure)[:160]
        seconds = time.perf_counter() - began
        return Answer(status, "".join(text), error, seconds, first, tokens, finish)

    def _post(self, content: bytes) -> Any:
        headers = {"Content-Type": "application/json"}
        return self._http.post("/v1/chat/completions", data=content, headers=headers)


@asynccontextmanager
async def connect(port: int) -> AsyncIterator[Client]:
    # vLLM closes a connection that was idle for five seconds: it must not be taken again.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=3)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        f"http://127.0.0.1:{port}", connector=connector, timeout=timeout, read_bufsize=1 << 20
    ) as http:
        yield Client(http)
