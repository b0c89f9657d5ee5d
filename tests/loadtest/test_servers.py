"""Servers that misbehave, over real sockets: honest counts, and no step that hangs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from aiohttp import web

from loadtest.fake_law import Law, SharedServer
from loadtest.fake_server import application
from loadtest.generator import Timing, run_step
from loadtest.outcomes import Outcome, Reply
from loadtest.pages import Page
from loadtest.routes import Chat, Route, build
from loadtest.schedule import Arrivals, Closed, Load, Open
from loadtest.slo import Slo
from loadtest.step import Step, summarise
from loadtest.target import connected

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

PAGE = Page(b"a page", "image/jpeg")
TEXT = {"text": "read"}
TIMING = Timing(warm_up_s=0.1, measure_s=0.6, timeout_s=0.4)
LOAD = Open(20, Arrivals.CONSTANT)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """A server that reads one request of each connection, and then does as `handler` says."""

    async def read_and_handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            await reader.readexactly(length)
            await handler(reader, writer)
            writer.close()

    server = await asyncio.start_server(read_and_handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def answer(status: str, body: object, *headers: str) -> bytes:
    content = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + content


async def step(url: str, load: Load = LOAD, timing: Timing = TIMING, slo_s: float = 0.3) -> Step:
    request = build(Route.OCR, PAGE, Chat())
    async with connected(url, Route.OCR, [request]) as target:
        record = await run_step(target.send, load, timing)
    assert all(s.ended - s.due < timing.timeout_s + 2.0 for s in record.samples)
    return summarise(load, record, Slo(slo_s))


def total(found: Step) -> int:
    counts = found.counts
    return (
        counts.answered + sum(counts.refused.values()) + sum(counts.failed.values())
        + counts.broken + counts.unreachable + counts.timed_out + counts.unsent
    )  # fmt: skip


async def of(handler: Handler, load: Load = LOAD) -> Step:
    """Callers who wait after they got no answer are counted from the first."""
    timing = replace(TIMING, warm_up_s=0.0) if isinstance(load, Closed) else TIMING
    async with serving(handler) as url:
        found = await step(url, load, timing)
    assert total(found) == found.counts.due > 0
    return found


async def test_nobody_listens() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        found = await step(f"http://127.0.0.1:{bound.getsockname()[1]}")
    assert found.counts.unreachable == found.counts.due > 0
    assert found.answered_per_s == 0


async def test_connections_are_closed_at_once() -> None:
    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    found = await of(close)
    assert found.counts.broken == found.counts.due


async def test_a_server_that_says_nothing() -> None:
    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    found = await of(hang)
    assert found.counts.timed_out == found.counts.due
    closed = await of(hang, Closed(3))
    assert closed.counts.timed_out == closed.counts.due


async def test_a_server_that_stops_in_the_middle_of_a_body() -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer("200 OK", TEXT)[:-3])
        await writer.drain()
        await reader.read()

    found = await of(stall)
    assert found.counts.timed_out == found.counts.due


async def test_half_closed_before_the_answer_and_within_it() -> None:
    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write_eof()
        await reader.read()

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer("200 OK", TEXT)[:-3])
        writer.write_eof()
        await reader.read()

    for handler in (nothing, cut):
        found = await of(handler)
        assert found.counts.broken == found.counts.due


async def test_429_and_503_are_refusals_with_the_servers_code() -> None:
    statuses = iter(["429 Too Many Requests", "503 Service Unavailable"] * 500)

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status = next(statuses)
        code = "queue_full" if status.startswith("429") else "breaker_open"
        writer.write(answer(status, {"code": code}, "Retry-After: 7"))
        await writer.drain()

    found = await of(refuse)
    assert found.counts.refused.keys() == {"queue_full", "breaker_open"}
    assert sum(found.counts.refused.values()) == found.counts.due
    assert found.retry_after_s == 7
    assert found.failed_share == 1
    # A caller who is told to come back in seven seconds does not come back in this step.
    closed = await of(refuse, Closed(4))
    assert closed.counts.due == 4


async def test_other_statuses_and_answers_without_text_are_failures() -> None:
    bodies = iter([("500 Internal Server Error", {"code": "internal_error"}), ("200 OK", {})] * 500)

    async def fail(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(*next(bodies)))
        await writer.drain()

    found = await of(fail)
    assert found.counts.failed.keys() == {"internal_error", "no text"}
    assert found.counts.answered == 0


async def test_slow_answers_are_late_and_no_failures() -> None:
    async def slow(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.2)
        writer.write(answer("200 OK", TEXT))
        await writer.drain()

    async with serving(slow) as url:
        found = await step(url, timing=Timing(0.1, 0.6, 5.0), slo_s=0.15)
    assert found.counts.late == found.counts.due > 0
    assert found.goodput_per_s == 0
    assert found.failed_share == 0
    assert not found.held


async def test_a_stream_tells_its_first_text_and_must_be_whole() -> None:
    def events(*contents: str, end: str = "data: [DONE]\n\n") -> web.Response:
        chunks = [{"choices": [{"delta": {"content": text}}]} for text in contents]
        body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + end
        return web.Response(text=body, content_type="text/event-stream")

    async def slow_stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for text in ("", "To", "tal"):
            chunk = {"choices": [{"delta": {"content": text}}]}
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
            await asyncio.sleep(0.2)
        await response.write(b"data: [DONE]\n\n")
        return response

    async def cut_off(_: web.Request) -> web.StreamResponse:
        return events("To", end="")

    async def failed(_: web.Request) -> web.StreamResponse:
        return events(end='data: {"error": {"code": "engine_unavailable"}}\n\n')

    async def failed_later(_: web.Request) -> web.StreamResponse:
        end = 'data: {"error": {"code": "engine_failed"}}\n\ndata: [DONE]\n\n'
        return events("To", "tal", end=end)

    async def odd(_: web.Request) -> web.StreamResponse:
        return events(end='data: {"choices": [null, {"delta": "x"}]}\n\ndata: [DONE]\n\n')

    request = build(Route.CHAT, PAGE, Chat(more={"stream": True}))
    replies: list[Reply] = []
    for handler in (slow_stream, cut_off, failed, failed_later, odd):
        app = web.Application()
        app.router.add_post(Route.CHAT, handler)
        async with listening(app) as url, connected(url, Route.CHAT, [request]) as target:
            began = asyncio.get_running_loop().time()
            replies.append(await target.send())
            ended = asyncio.get_running_loop().time()
            if handler is slow_stream:
                assert replies[0].first_at is not None
                assert replies[0].first_at - began > 0.15
                assert ended - replies[0].first_at > 0.2
    assert [(r.outcome, r.code) for r in replies] == [
        (Outcome.ANSWERED, ""),
        (Outcome.BROKEN, ""),
        (Outcome.FAILED, "engine_unavailable"),
        (Outcome.FAILED, "engine_failed"),
        (Outcome.FAILED, "no text"),
    ]


async def test_every_route_of_the_fake_server_is_answered() -> None:
    async with listening(application(SharedServer(Law(0.01)))) as url:
        for route in Route:
            async with connected(url, route, [build(route, PAGE, Chat())], "key") as target:
                assert (await target.send()).outcome is Outcome.ANSWERED


async def test_a_full_fake_server_refuses() -> None:
    request = build(Route.OCR, PAGE, Chat())
    async with (
        listening(application(SharedServer(Law(0.3, limit=1)))) as url,
        connected(url, Route.OCR, [request]) as target,
    ):
        replies = await asyncio.gather(target.send(), target.send())
    assert {(r.outcome, r.code, r.retry_after_s) for r in replies} == {
        (Outcome.ANSWERED, "", None),
        (Outcome.REFUSED, "queue_full", 1.0),
    }


@asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
