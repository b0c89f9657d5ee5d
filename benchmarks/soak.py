"""Hours in minutes: steady load, clients that leave, an engine that is killed and comes back.

    make soak                                   # 30 minutes
    .venv/bin/python -m benchmarks.soak --minutes 5

Every request must get one whole answer, and what is held must not grow: sockets, descriptors,
tasks and memory of the serving process. Ends with 1 where that does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.goodput_wall_clock import CAPACITY_PER_S, CONTENTION, IN_FLIGHT, PAGE_S
from benchmarks.load import post
from benchmarks.open_loop import BrokenAnswer, read_rest, read_status
from benchmarks.peers.running import started
from benchmarks.standin import MODEL
from tests.api.server import Server, free_ports, running_server
from tests.pictures import jpeg_bytes

LOAD = 0.8
LEAVES = 0.05
KILL_EVERY_S = 45.0
SAMPLE_EVERY_S = 5.0
SETTLE_S = 8.0
_ANSWER_WITHIN_S = 90.0
# A draining allocator and a pool's idle connections are no leak.
_GROWTH_MAX_MB = 40.0
_MORE_MAX = 8


@dataclass(frozen=True, slots=True)
class Held:
    """What the serving process holds."""

    rss_mb: float
    descriptors: int
    sockets: int
    tasks: int


@dataclass(slots=True)
class Seen:
    answers: Counter[str] = field(default_factory=Counter)
    left: int = 0
    kills: int = 0
    samples: list[Held] = field(default_factory=list)


def held(server: Server) -> Held:
    names = []
    for number in os.listdir(f"/proc/{server.pid}/fd"):
        with suppress(FileNotFoundError):
            names.append(os.readlink(f"/proc/{server.pid}/fd/{number}"))
    return Held(
        rss_mb=server.rss_megabytes(),
        descriptors=len(names),
        sockets=sum(name.startswith("socket:") for name in names),
        tasks=int(server.metric("hunyuan_ocr_event_loop_tasks")),
    )


def requests() -> dict[str, bytes]:
    """What callers ask for, by name."""
    page = jpeg_bytes()
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "Read."}]}

    def raw(accept: str, query: str) -> bytes:
        head = (
            f"POST /v1/ocr{query} HTTP/1.1\r\nHost: x\r\nContent-Type: image/jpeg\r\n"
            f"Accept: {accept}\r\nContent-Length: {len(page)}\r\n\r\n"
        )
        return head.encode() + page

    return {
        "page": raw("application/json", ""),
        "interactive": raw("application/json", "?priority=interactive"),
        "events": raw("text/event-stream", ""),
        "chat": post("/v1/chat/completions", json.dumps(chat).encode()),
    }


class Engine:
    """A stand-in engine that can be killed and started again at the same port."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self._folder = folder
        law = ["--latency-ms", str(PAGE_S * 1e3), "--contention", str(CONTENTION)]
        self._command = [sys.executable, "-m", "benchmarks.standin", "--port", str(self.port), *law]

    def __enter__(self) -> Engine:
        self._stack = ExitStack()
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def restart(self) -> None:
        """Kill it, with whatever it holds, and start another."""
        self._process.kill()
        self._stack.close()
        self._start()

    def _start(self) -> None:
        log = self._folder / "engine.log"
        self._process = self._stack.enter_context(started(self._command, {}, self.port, log))


async def one(port: int, request: bytes, leaves_after_s: float | None, seen: Seen) -> None:
    outcome = "no answer"
    writer = None
    try:
        async with asyncio.timeout(leaves_after_s or _ANSWER_WITHIN_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            status, head = await read_status(reader)
            await read_rest(reader, head)
            outcome = str(status)
    except TimeoutError:
        if leaves_after_s is not None:
            seen.left += 1
            return
    except (OSError, BrokenAnswer) as error:
        outcome = type(error).__name__
    finally:
        if writer is not None:
            writer.transport.abort()
    seen.answers[outcome] += 1


async def load(server: Server, seconds: float, seen: Seen) -> None:
    port = int(server.url.rpartition(":")[2])
    kinds, rng, loop = requests(), random.Random(1), asyncio.get_running_loop()
    due, tasks = loop.time(), set[asyncio.Task[None]]()
    end = due + seconds
    while (due := due + rng.expovariate(LOAD * CAPACITY_PER_S)) < end:
        await asyncio.sleep(due - loop.time())
        leaves_after_s = rng.uniform(0.01, 1.0) if rng.random() < LEAVES else None
        request = kinds[rng.choice(list(kinds))]
        task = asyncio.create_task(one(port, request, leaves_after_s, seen))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)


async def sample(server: Server, seen: Seen) -> None:
    while True:
        await asyncio.sleep(SAMPLE_EVERY_S)
        seen.samples.append(await asyncio.to_thread(held, server))


def problems(before: Held, after: Held, seen: Seen) -> list[str]:
    """What did not hold; `before` and `after` without load, once all had settled."""
    found = [f"{count} x {name}" for name, count in seen.answers.items() if not name.isdecimal()]
    quarter = len(seen.samples) // 4
    early = sorted(s.rss_mb for s in seen.samples[quarter : 2 * quarter])
    late = sorted(s.rss_mb for s in seen.samples[-quarter:])
    if quarter and late[quarter // 2] > early[quarter // 2] + _GROWTH_MAX_MB:
        found.append(f"memory grew from {early[quarter // 2]:.0f} to {late[quarter // 2]:.0f} MB")
    for name in ("descriptors", "sockets", "tasks"):
        had, has = getattr(before, name), getattr(after, name)
        if has > had + _MORE_MAX:
            found.append(f"{name} grew from {had} to {has}")
    return found


async def soak(server: Server, engine: Engine, seconds: float) -> tuple[Held, Held, Seen]:
    seen = Seen()
    # What is made once, connections and caches, is there after a first short load.
    await load(server, SETTLE_S, seen)
    await asyncio.sleep(SETTLE_S)
    before = await asyncio.to_thread(held, server)
    watching = asyncio.create_task(sample(server, seen))
    loading = asyncio.create_task(load(server, seconds, seen))
    while not loading.done():
        await asyncio.wait((loading,), timeout=KILL_EVERY_S)
        if not loading.done():
            await asyncio.to_thread(engine.restart)
            seen.kills += 1
    await loading
    watching.cancel()
    await asyncio.sleep(SETTLE_S)
    return before, await asyncio.to_thread(held, server), seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30.0)
    seconds = parser.parse_args().minutes * 60
    with tempfile.TemporaryDirectory() as name, Engine(Path(name)) as engine:
        settings: dict[str, Any] = {
            "engine": "vllm",
            "isolation_check": "warn",
            "vllm_concurrency": IN_FLIGHT,
        }
        url = f"http://127.0.0.1:{engine.port}"
        with running_server(Path(name), vllm_url=url, **settings) as server:
            before, after, seen = asyncio.run(soak(server, engine, seconds))
    found = problems(before, after, seen)
    print(*found, sep="\n", file=sys.stderr)
    answers = dict(sorted(seen.answers.items()))
    held_mb = {"before": asdict(before), "after": asdict(after)}
    print(json.dumps({"answers": answers, "left": seen.left, "kills": seen.kills} | held_mb))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
