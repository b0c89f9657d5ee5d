"""A load generator that costs little: raw sockets, one fixed request, one keep-alive connection
for each request in flight."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import cast

_BUFFER_BYTES = 64 * 1024
_FINISH_TIMEOUT_S = 10.0
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)

_Answer = tuple[float, float]  # when it was asked for, and when it was there


class LoadError(Exception):
    """An answer that was not 200, or none: what would be measured is not what was asked for."""


@dataclass(frozen=True, slots=True)
class Window:
    """What was seen between two points in time; `cpu_s` is the server's."""

    latencies_s: Sequence[float]
    answers: int
    seconds: float
    cpu_s: float

    @property
    def p50_ms(self) -> float:
        return median(self.latencies_s) * 1e3

    @property
    def per_second(self) -> float:
        return self.answers / self.seconds

    @property
    def cpu_ms(self) -> float:
        return self.cpu_s / self.answers * 1e3


def post(path: str, body: bytes) -> bytes:
    """The bytes of a request with a JSON body."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: benchmark\r\ncontent-type: application/json\r\n"
        f"accept: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _Caller(asyncio.BufferedProtocol):
    """Asks again as soon as it is answered; `answered` gets the start of each request."""

    def __init__(self, request: bytes, answered: Callable[[float], None]) -> None:
        self._request = request
        self._answered = answered
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._transport: asyncio.Transport | None = None
        self._started = 0.0
        self._got = b""
        self.failed: str | None = None
        self.idle = asyncio.Event()
        self.idle.set()
        self._last = False
        self._stopped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._stopped:
            self._fail(f"the connection was closed: {error}")

    def ask(self) -> None:
        if self._transport is None or self._last:
            return
        self.idle.clear()
        self._started = time.perf_counter()
        self._transport.write(self._request)

    def ask_no_more(self) -> None:
        self._last = True

    def stop(self) -> None:
        self._stopped = True
        self.idle.set()
        if self._transport is not None:
            self._transport.abort()

    def get_buffer(self, _: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self._got += bytes(self._buffer[:count])
        head, end, body = self._got.partition(b"\r\n\r\n")
        if not end:
            return
        length = _LENGTH.search(head)
        if length is None or not head.startswith(b"HTTP/1.1 200"):
            self._fail(head[:200].decode("latin-1") + body[:200].decode("latin-1"))
        elif len(body) >= int(length[1]):
            self._got = b""
            self.idle.set()
            self._answered(self._started)
            self.ask()

    def _fail(self, reason: str) -> None:
        self.failed = reason
        self.stop()


async def _finish(callers: Sequence[_Caller]) -> None:
    """Let what was asked be answered: work left over would fall into the next measurement."""
    for caller in callers:
        caller.ask_no_more()
    with suppress(TimeoutError):
        async with asyncio.timeout(_FINISH_TIMEOUT_S):
            for caller in callers:
                await caller.idle.wait()
    for caller in callers:
        caller.stop()


async def _connected(port: int, caller: _Caller) -> _Caller:
    await asyncio.get_running_loop().create_connection(lambda: caller, "127.0.0.1", port)
    return caller


async def closed_loop(
    port: int,
    request: bytes,
    cpu_s: Callable[[], float],
    *,
    in_flight: int,
    warm_up_s: float,
    measure_s: float,
    spread_s: float = 0.0,
    seed: int = 0,
) -> Window:
    """Keep `in_flight` requests going and look at the server for `measure_s`.

    The callers begin at random within `spread_s`, as callers do that know nothing of each other:
    begun together, they would stay together and measure each other's turns.

    Raises LoadError.
    """
    answers: list[_Answer] = []
    loop = asyncio.get_running_loop()

    def answered(started: float) -> None:
        answers.append((started, time.perf_counter()))

    callers: list[_Caller] = []
    rng = random.Random(seed)
    try:
        for _ in range(in_flight):
            callers.append(caller := await _connected(port, _Caller(request, answered)))
            loop.call_later(rng.uniform(0, spread_s), caller.ask)
        await asyncio.sleep(warm_up_s)
        began, used = time.perf_counter(), cpu_s()
        await asyncio.sleep(measure_s)
        ended, used = time.perf_counter(), cpu_s() - used
    finally:
        await _finish(callers)
    if failed := [caller.failed for caller in callers if caller.failed]:
        raise LoadError(failed[0])
    return _window(answers, began, ended, used)


def _window(answers: Sequence[_Answer], began: float, ended: float, cpu_s: float) -> Window:
    latencies = [end - start for start, end in answers if start >= began and end <= ended]
    if not latencies:
        raise LoadError(f"no answer within the time, {len(answers)} in all")
    count = sum(began <= end <= ended for _, end in answers)
    return Window(latencies, count, ended - began, cpu_s)
