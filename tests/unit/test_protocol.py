"""What a connection may do before it has made a request, on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from hunyuan_ocr.protocol import ConnectionLimits, bounded

LIMITS = ConnectionLimits(connections=9, header_bytes=2_000, header_timeout_s=0.3)
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def slow(_: Scope, __: Receive, send: Send) -> None:
    await asyncio.sleep(1)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    config = Config(slow, log_config=None, lifespan="off", access_log=False)
    config.load()
    state, protocol = ServerState(), bounded(LIMITS)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        yield reader, writer
        writer.close()


async def test_an_answer_that_is_due_is_not_lost_to_the_next_requests_silence() -> None:
    async with connected() as (reader, writer):
        writer.write(REQUEST + b"GE")
        said = await asyncio.wait_for(reader.read(), 10)
    assert said.startswith(b"HTTP/1.1 200 ")
    assert said.index(b" 408 ") > said.index(b" 200 ")


async def test_headers_that_come_in_one_piece_are_counted() -> None:
    async with connected() as (reader, writer):
        writer.write(REQUEST[:-2] + b"X-Filler: 0123456789\r\n" * 200 + b"\r\n")
        said = await asyncio.wait_for(reader.read(), 10)
    assert b" 431 " in said
    assert b" 200 " not in said
