"""A clock that speaks as much of vLLM's HTTP as a proxy in front of it needs.

    python -m benchmarks.standin --port P [--latency-ms 200]

Every chat request gets the same small answer, `--latency-ms` after its last byte came in;
`PUT /latency-ms/N` changes that. It reads bodies without looking at them, so what is measured
with it is what stands in front of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from typing import Any, cast

import uvloop

MODEL = "HunyuanOCR"

_BUFFER_BYTES = 256 * 1024
# `stream` stands before or behind the image, so it is in one of the body's ends.
_END_BYTES = 4096
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_STREAM = re.compile(rb'"stream":\s*true')
_CARD = {"id": MODEL, "object": "model", "owned_by": "vllm", "max_model_len": 8192}
_USAGE = {"prompt_tokens": 812, "completion_tokens": 24, "total_tokens": 836}
_TEXT = "Invoice No: 20417\nTotal amount: 1,284.50"


def _chat(kind: str, choice: dict[str, Any]) -> str:
    common = {"id": "chatcmpl-0", "object": kind, "created": 1, "model": MODEL}
    choices = [{"index": 0, "finish_reason": "stop", **choice}]
    return json.dumps({**common, "choices": choices, "usage": _USAGE})


def _response(body: bytes, media_type: str = "application/json", status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _events(*events: str) -> bytes:
    return b"".join(f"data: {event}\n\n".encode() for event in events)


_MESSAGE = {"role": "assistant", "content": _TEXT}
_ANSWER = _response(_chat("chat.completion", {"message": _MESSAGE}).encode())
_STREAMED = _response(
    _events(_chat("chat.completion.chunk", {"delta": _MESSAGE}), "[DONE]"), "text/event-stream"
)
_HEALTHY = _response(b"")
_MODELS = _response(json.dumps({"object": "list", "data": [_CARD]}).encode())
_UNKNOWN = _response(b"", status="404 Not Found")
_LENGTH_REQUIRED = _response(b"", status="411 Length Required")


class Clock:
    """What all connections share: the latency, and the counts that /metrics shows."""

    def __init__(self, latency_s: float) -> None:
        self.latency_s = latency_s
        self.running = 0
        self.steps = 0
        self._started_s = time.time()

    def metrics(self) -> bytes:
        samples = {
            "process_start_time_seconds": self._started_s,
            'vllm:num_requests_running{engine="0"}': self.running,
            'vllm:num_requests_waiting{engine="0"}': 0,
            'vllm:iteration_tokens_total_count{engine="0"}': self.steps,
        }
        text = "".join(f"{name} {value}\n" for name, value in samples.items())
        return _response(text.encode(), "text/plain")


class Connection(asyncio.BufferedProtocol):
    """One keep-alive connection; the next request comes after the answer to the last one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._transport: asyncio.Transport | None = None
        self._due: asyncio.TimerHandle | None = None
        self._begin()

    def _begin(self) -> None:
        self._head = b""
        self._first = b""
        self._last = b""
        self._left = -1  # bytes of the body still to come; below zero while the head is read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        if self._due is not None:
            self._due.cancel()
            self._finished()

    def get_buffer(self, _: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        if self._left < 0:
            self._read_head(bytes(self._buffer[:count]))
        else:
            self._read_body(self._buffer[:count])

    def _read_head(self, data: bytes) -> None:
        self._head += data
        head, end, body = self._head.partition(b"\r\n\r\n")
        if not end:
            return
        self._head = head
        if _CHUNKED.search(head):
            self._write(_LENGTH_REQUIRED)
            return
        length = _LENGTH.search(head)
        self._left = int(length[1]) if length else 0
        self._first = body[:_END_BYTES]
        self._read_body(memoryview(body))

    def _read_body(self, data: memoryview) -> None:
        self._left -= len(data)
        if self._left < _END_BYTES:
            self._last = (self._last + bytes(data[-_END_BYTES:]))[-_END_BYTES:]
        if self._left <= 0:
            self._answer()

    def _answer(self) -> None:
        method, path, _ = self._head.split(b" ", 2)
        if (method, path) == (b"POST", b"/v1/chat/completions"):
            ends = (self._first, self._last)
            self._later(_STREAMED if any(map(_STREAM.search, ends)) else _ANSWER)
        elif method == b"PUT" and path.startswith(b"/latency-ms/"):
            self._clock.latency_s = float(path.rpartition(b"/")[2]) / 1e3
            self._write(_HEALTHY)
        else:
            pages = {b"/health": _HEALTHY, b"/v1/models": _MODELS}
            known = self._clock.metrics() if path == b"/metrics" else pages.get(path, _UNKNOWN)
            self._write(known)

    def _later(self, answer: bytes) -> None:
        self._clock.running += 1
        if self._clock.latency_s:
            loop = asyncio.get_running_loop()
            self._due = loop.call_later(self._clock.latency_s, self._finish, answer)
        else:
            self._finish(answer)

    def _finish(self, answer: bytes) -> None:
        self._finished()
        self._write(answer)

    def _finished(self) -> None:
        self._due = None
        self._clock.running -= 1
        self._clock.steps += 1

    def _write(self, answer: bytes) -> None:
        self._begin()
        if self._transport is not None:
            self._transport.write(answer)


async def serve(port: int, latency_s: float) -> None:
    """Serve on the loopback until cancelled."""
    clock = Clock(latency_s)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(clock), "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--latency-ms", type=float, default=200.0)
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.latency_ms / 1e3))


if __name__ == "__main__":
    main()
