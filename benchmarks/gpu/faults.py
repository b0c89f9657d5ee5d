"""EngineCore hangs (SIGSTOP) or dies (SIGKILL): what callers and probes see, and when."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.gpu.http import Answer, Client, body, get_status
from benchmarks.gpu.server import Server
from hunyuan_ocr.engines.isolation import new_pages

PROBED = ("/health", "/v1/models")


class Watch:
    """Probes paths in the background and keeps only what changes."""

    def __init__(self, port: int, period_s: float = 0.1, timeout_s: float = 2.0) -> None:
        self._port, self._period_s, self._timeout_s = port, period_s, timeout_s
        self.began = time.perf_counter()
        self.changes: dict[str, list[list[object]]] = {path: [] for path in PROBED}

    async def _probe(self, path: str) -> None:
        last: object = "nothing yet"
        while True:
            at = time.perf_counter() - self.began
            status = await asyncio.to_thread(get_status, self._port, path, self._timeout_s)
            seen = "no answer" if status is None else status
            if seen != last:
                self.changes[path].append([round(at, 2), seen])
                last = seen
            await asyncio.sleep(self._period_s)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Watch]:
        tasks = [asyncio.create_task(self._probe(path)) for path in PROBED]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks)


def _told(answer: Answer, after: float) -> dict[str, object]:
    return {
        "status": answer.status, "ended_after_signal_s": round(after, 2), "error": answer.error,
        "text_chars": len(answer.text), "finish_reason": answer.finish_reason,
    }  # fmt: skip


async def _timed(
    client: Client, content: bytes, began: float, timeout_s: float
) -> dict[str, object]:
    answer = await client.stream(content, timeout_s)
    return _told(answer, time.perf_counter() - began)


def _long(image: bytes, tokens: int) -> bytes:
    return body(
        image, stream=True, ignore_eos=True, max_tokens=tokens,
        stream_options={"include_usage": True},
    )  # fmt: skip


async def hang(client: Client, server: Server, *, tokens: int, stop_s: float) -> dict[str, object]:
    """SIGSTOP with four streams in flight and a new request; SIGCONT after `stop_s`."""
    core = server.core()
    if core is None:
        return {"error": "no EngineCore found"}
    pages = new_pages(5, random.Random(3), [])
    began = time.perf_counter()
    flying = [
        asyncio.create_task(_timed(client, _long(p.image, tokens), began, 120)) for p in pages[:4]
    ]
    await asyncio.sleep(0.4)
    async with Watch(server.plan.port).running() as watch:
        os.kill(core, signal.SIGSTOP)
        stopped = time.perf_counter()
        await asyncio.sleep(0.5)
        new = asyncio.create_task(client.chat(body(pages[4].image, max_tokens=96), 120))
        await asyncio.sleep(stop_s - 0.5)
        flying_done, new_done = sum(task.done() for task in flying), new.done()
        os.kill(core, signal.SIGCONT)
        resumed = time.perf_counter()
        answer = await new
        waited = time.perf_counter() - resumed
        outcomes = await asyncio.gather(*flying)
    return {
        "stopped_s": round(resumed - stopped, 2), "probes_since_stop": watch.changes,
        "in_flight_done_while_stopped": flying_done, "new_done_while_stopped": new_done,
        "new_answered_after_resume_s": round(waited, 2), "new_status": answer.status,
        "in_flight": outcomes,
    }  # fmt: skip


async def kill(
    client: Client, server: Server, *, busy: int, tokens: int, watch_s: float
) -> dict[str, object]:
    """SIGKILL with `busy` streams in flight, then a new request every half second.

    With none in flight no request comes for three seconds: what notices the death by itself?
    """
    core = server.core()
    if core is None:
        return {"error": "no EngineCore found"}
    pages = new_pages(max(1, busy), random.Random(4), [])
    began = time.perf_counter()
    flying = [
        asyncio.create_task(_timed(client, _long(p.image, tokens), began, watch_s + 5))
        for p in pages[:busy]
    ]
    await asyncio.sleep(0.8)
    news: list[dict[str, object]] = []
    exit_after: float | None = None
    next_new_s = 0.0 if busy else 3.0
    early = sum(task.done() for task in flying)
    async with Watch(server.plan.port, 0.05).running() as watch:
        killed = time.perf_counter()
        os.kill(core, signal.SIGKILL)
        while (since := time.perf_counter() - killed) < watch_s:
            if exit_after is None and server.process.poll() is not None:
                exit_after = round(since, 2)
            if exit_after is not None and since > exit_after + 1.0:
                break
            if since >= next_new_s:
                next_new_s += 0.5
                answer = await client.chat(body(pages[0].image, max_tokens=8), 3)
                news.append(
                    {"sent_after_s": round(since, 2), "status": answer.status,
                     "seconds": round(answer.seconds, 2), "error": answer.error[:60]}
                )  # fmt: skip
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)
    outcomes = await asyncio.gather(*flying)
    shift = killed - began
    for outcome in outcomes:
        outcome["ended_after_signal_s"] = round(
            float(str(outcome["ended_after_signal_s"])) - shift, 2
        )
    return {
        "in_flight_at_kill": busy - early, "in_flight": outcomes, "new": news,
        "probes_since_kill": watch.changes, "api_server_ended_after_s": exit_after,
        "exit_code": server.process.poll(),
    }  # fmt: skip
