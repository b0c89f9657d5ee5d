"""Ten times the load with large bodies: what it costs, and what those who are refused notice.

    make figure NAME=overload

2,000 connections stay open and bring 200 requests a second with bodies of 5 MB, which wait for
`100 Continue`. `lost` are requests that got neither a page nor a refusal; `refusal_p99_ms` runs
from the end of the headers to the refusal of those refused before their body, as the generator
sees it, which is late itself by `generator_lag_p99_ms`. `server_lag_p99_ms` is a bound on how late
the server's event loop ran its timers, `server_waited_s` how long it wanted a core that others
had. The serving process may grow by `bodies_limit_mb` and by `ALLOWANCE_MB` from `idle_rss_mb`,
with all connections open, to `peak_rss_mb`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import tempfile
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import uvloop

from benchmarks.goodput_wall_clock import CAPACITY_PER_S, IN_FLIGHT, engine
from benchmarks.open_loop import BrokenAnswer, read_rest, read_status
from tests.api.server import Server, running_server
from tests.pictures import picture, saved

CONNECTIONS = 2000
# Each address is a caller of its own, and one caller alone may not fill the memory for bodies.
ADDRESSES = 16
LOAD = 10.0
SECONDS = 30.0
BODY_BYTES = 5_000_000
BODIES_MEGABYTES = 256
# A body on its way to a decode process is there twice, and a buffer of each connection.
ALLOWANCE_MB = 64
_COMMENT_BYTES = 65_000
_ANSWER_WITHIN_S = 90.0

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def large_jpeg() -> bytes:
    """A page that is larger than engines are shown, in a file swollen by comments."""
    plain = saved(picture(size=(1200, 1000))[0], "JPEG")
    comment = b"\xff\xfe" + _COMMENT_BYTES.to_bytes(2, "big") + bytes(_COMMENT_BYTES - 2)
    count = (BODY_BYTES - len(plain)) // len(comment)
    return plain[:2] + comment * count + plain[2:]


@dataclass(slots=True)
class Seen:
    """What came of the requests, by status, and how long those refused early waited."""

    statuses: Counter[str] = field(default_factory=Counter)
    early_s: list[float] = field(default_factory=list)
    ready: Counter[int] = field(default_factory=Counter)
    own_lag_s: list[float] = field(default_factory=list)
    idle_mb: float = 0.0


class Callers:
    """Connections that stay open, each used again when its answer is there, or replaced."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: deque[Connection] = deque()
        self._body = large_jpeg()
        self._head = (
            "POST /v1/ocr HTTP/1.1\r\nHost: benchmark\r\nContent-Type: image/jpeg\r\n"
            f"Content-Length: {len(self._body)}\r\nExpect: 100-continue\r\n\r\n"
        ).encode()
        self.seen = Seen()
        self._hosts = itertools.cycle(range(1, ADDRESSES + 1))

    async def connect(self, count: int) -> None:
        for _ in range(count):
            address = f"127.0.0.{next(self._hosts)}"
            self._idle.append(
                await asyncio.open_connection("127.0.0.1", self._port, local_addr=(address, 0))
            )

    async def ask(self) -> None:
        reader, writer = self._idle.popleft()  # the one that was idle longest
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                outcome = await self._converse(reader, writer)
        except (TimeoutError, OSError, BrokenAnswer) as error:
            outcome = type(error).__name__
        self.seen.statuses[outcome] += 1
        if outcome.isdecimal():
            self._idle.append((reader, writer))
        else:
            # The server still expects the body that was announced: as curl does, begin anew.
            writer.transport.abort()
            await self.connect(1)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        began = time.perf_counter()
        writer.write(self._head)
        status, head = await read_status(reader)
        if status != 100:
            self.seen.early_s.append(time.perf_counter() - began)
            await read_rest(reader, head)
            return f"{status} before the body"
        writer.write(self._body)
        # A server that has read enough may answer before the end of the body.
        sending = asyncio.ensure_future(writer.drain())
        try:
            status, head = await read_status(reader)
            await read_rest(reader, head)
            await sending
        finally:
            sending.cancel()
        return str(status)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.transport.abort()


async def watch_readiness(client: httpx.AsyncClient, server: Server, seen: Seen) -> None:
    while True:
        answer = await client.get(f"{server.management_url}/readyz")
        seen.ready[answer.status_code] += 1
        await asyncio.sleep(0.5)


async def watch_own_lag(seen: Seen) -> None:
    """How late this process is itself: that much of what it measures is not the server's."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + 0.02
        await asyncio.sleep(0.02)
        seen.own_lag_s.append(loop.time() - due)


async def measure(server: Server) -> Seen:
    async with httpx.AsyncClient(timeout=5) as client:  # takes long to make, and nobody else waits
        return await load(client, server)


async def load(client: httpx.AsyncClient, server: Server) -> Seen:
    callers = Callers(int(server.url.rpartition(":")[2]))
    await callers.connect(CONNECTIONS)
    callers.seen.idle_mb = server.rss_megabytes()
    watching = [
        asyncio.create_task(watch_readiness(client, server, callers.seen)),
        asyncio.create_task(watch_own_lag(callers.seen)),
    ]
    rng = random.Random(1)
    loop = asyncio.get_running_loop()
    due, tasks = loop.time(), []
    end = due + SECONDS
    while (due := due + rng.expovariate(LOAD * CAPACITY_PER_S)) < end:
        await asyncio.sleep(due - loop.time())
        tasks.append(asyncio.create_task(callers.ask()))
    await asyncio.gather(*tasks)
    for watch in watching:
        watch.cancel()
    callers.close()
    return callers.seen


def cpu_s(server: Server) -> tuple[float, float]:
    """Seconds that its event loop's thread ran, and waited for a core that others had."""
    ran_ns, waited_ns, _ = Path(f"/proc/{server.pid}/schedstat").read_text().split()
    return int(ran_ns) / 1e9, int(waited_ns) / 1e9


def lags(server: Server) -> dict[float, float]:
    """How often its event loop was at most that late, by seconds."""
    text = httpx.get(f"{server.management_url}/metrics").text
    buckets = re.findall(r'event_loop_lag_seconds_bucket{le="([^"]+)"} (\S+)', text)
    return {float(most_s): float(count) for most_s, count in buckets}


def p99_bound_ms(before: dict[float, float], after: dict[float, float]) -> float:
    counts = {most_s: after[most_s] - before[most_s] for most_s in after}
    all_of_them = max(counts.values())
    return 1e3 * min(most_s for most_s, count in counts.items() if count >= 0.99 * all_of_them)


def p99_ms(seconds: list[float]) -> float:
    return round(1e3 * sorted(seconds)[int(0.99 * (len(seconds) - 1))], 1)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        engine(Path(folder)) as port,
        running_server(
            Path(folder),
            engine="vllm",
            vllm_url=f"http://127.0.0.1:{port}",
            isolation_check="warn",
            vllm_concurrency=IN_FLIGHT,
            max_bodies_megabytes=BODIES_MEGABYTES,
        ) as server,
    ):
        cpu_before, lags_before = cpu_s(server), lags(server)
        seen = uvloop.run(measure(server))
        ran_s, waited_s = (now - then for now, then in zip(cpu_s(server), cpu_before, strict=True))
        server_lag_ms = p99_bound_ms(lags_before, lags(server))
        peak_mb = server.peak_rss_megabytes()
    print(f"answers: {dict(seen.statuses)}; readiness: {dict(seen.ready)}")
    kept = ("200", "429", "429 before the body")
    figure = {
        "lost": sum(count for status, count in seen.statuses.items() if status not in kept),
        "refusal_p99_ms": p99_ms(seen.early_s),
        "generator_lag_p99_ms": p99_ms(seen.own_lag_s),
        "server_lag_p99_ms": server_lag_ms,
        "server_ran_s": round(ran_s, 1),
        "server_waited_s": round(waited_s, 1),
        "peak_rss_mb": round(peak_mb),
        "idle_rss_mb": round(seen.idle_mb),
        "bodies_limit_mb": BODIES_MEGABYTES,
        "memory_bounded": peak_mb <= seen.idle_mb + BODIES_MEGABYTES + ALLOWANCE_MB,
        "requests": sum(seen.statuses.values()),
        "read": seen.statuses["200"],
        "unready": sum(count for status, count in seen.ready.items() if status != 200),
    }
    print(json.dumps(figure))


if __name__ == "__main__":
    main()
