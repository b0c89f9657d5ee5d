"""A clock that speaks as much of vLLM's HTTP as a proxy in front of it needs.

    python -m benchmarks.standin --port P [--latency-ms 200] [--contention 0.2] [--max-queued 64]

Every chat request gets the same small answer, `--latency-ms` after its last byte came in;
`PUT /latency-ms/N` changes that. With `--contention` c they share a batch: of n requests each takes
1 + c (n - 1) times as long. More than `--max-queued` at once are answered with 503. It reads bodies
without looking at them, so what is measured with it is what stands in front of it.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
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
_OVERLOADED = _response(b"", status="503 Service Unavailable")
_LENGTH_REQUIRED = _response(b"", status="411 Length Required")


@dataclass(frozen=True, slots=True)
class Law:
    """How long a request takes: `contention` is what each other one adds, as a part of it."""

    contention: float = 0.0
    max_queued: int | None = None


class Batch:
    """What all connections share: the requests in the batch, and the counts that /metrics shows.

    Each has a point of the batch's own time at which it is done; that time runs more slowly the
    more there are.
    """

    def __init__(self, latency_s: float, law: Law) -> None:
        self.latency_s = latency_s
        self._law = law
        self.steps = 0
        self._started_s = time.time()
        self._loop = asyncio.get_running_loop()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._gone: set[int] = set()
        self._numbers = itertools.count()
        self._own_s = 0.0
        self._looked_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> int:
        return len(self._due) - len(self._gone)

    @property
    def full(self) -> bool:
        return self._law.max_queued is not None and self.running >= self._law.max_queued

    def add(self, finish: Callable[[], None]) -> int:
        """Call `finish` when a request that joins now is done; returns its number."""
        self._look()
        number = next(self._numbers)
        heapq.heappush(self._due, (self._own_s + self.latency_s, number, finish))
        self._plan()
        return number

    def drop(self, number: int) -> None:
        self._look()
        self._gone.add(number)
        self._plan()

    def _stretch(self) -> float:
        return 1 + self._law.contention * max(0, self.running - 1)

    def _look(self) -> None:
        now = self._loop.time()
        self._own_s += (now - self._looked_s) / self._stretch()
        self._looked_s = now

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._due and self._due[0][1] in self._gone:
            self._gone.discard(heapq.heappop(self._due)[1])
        if self._due:
            after_s = (self._due[0][0] - self._own_s) * self._stretch()
            self._timer = self._loop.call_later(max(0.0, after_s), self._next)

    def _next(self) -> None:
        self._look()
        done = []
        while self._due and self._due[0][0] <= self._own_s + 1e-6:
            _, number, finish = heapq.heappop(self._due)
            if number in self._gone:
                self._gone.discard(number)
            else:
                done.append(finish)
        self._plan()
        self.steps += len(done)
        for finish in done:
            finish()

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

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._transport: asyncio.Transport | None = None
        self._number: int | None = None
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
        if self._number is not None:
            self._batch.drop(self._number)

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
            self._batch.latency_s = float(path.rpartition(b"/")[2]) / 1e3
            self._write(_HEALTHY)
        else:
            pages = {b"/health": _HEALTHY, b"/v1/models": _MODELS}
            known = self._batch.metrics() if path == b"/metrics" else pages.get(path, _UNKNOWN)
            self._write(known)

    def _later(self, answer: bytes) -> None:
        if self._batch.full:
            self._write(_OVERLOADED)
        elif not self._batch.latency_s:
            self._batch.steps += 1
            self._write(answer)
        else:
            self._number = self._batch.add(lambda: self._finish(answer))

    def _finish(self, answer: bytes) -> None:
        self._number = None
        self._write(answer)

    def _write(self, answer: bytes) -> None:
        self._begin()
        if self._transport is not None:
            self._transport.write(answer)


async def serve(port: int, latency_s: float, law: Law) -> None:
    """Serve on the loopback until cancelled."""
    batch = Batch(latency_s, law)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(batch), "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--latency-ms", type=float, default=200.0)
    parser.add_argument("--contention", type=float, default=0.0)
    parser.add_argument("--max-queued", type=int)
    options = parser.parse_args()
    law = Law(options.contention, options.max_queued)
    uvloop.run(serve(options.port, options.latency_ms / 1e3, law))


if __name__ == "__main__":
    main()
