"""Requests that come whether or not earlier ones were answered, each on a connection of its own."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

NO_ANSWER = 0
_HEAD_BYTES_MAX = 64 * 1024
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:\s*chunked", re.IGNORECASE)


class BrokenAnswer(Exception):
    """A connection ended in the middle of an answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`status` is NO_ANSWER where the client gave up; `sent` and `ended` by the loop's clock."""

    sent: float
    ended: float
    status: int


async def read_status(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status and head of the next answer. Raises ConnectionError, BrokenAnswer."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise BrokenAnswer(error.partial[:100].decode("latin-1")) from None
        raise ConnectionResetError("closed before an answer") from None
    return int(head.split(b" ", 2)[1]), head


async def read_rest(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """The body that belongs to `head`, to its end. Raises BrokenAnswer."""
    try:
        if _CHUNKED.search(head):
            parts = []
            while size := int(await reader.readuntil(b"\r\n"), 16):
                parts.append((await reader.readexactly(size + 2))[:-2])
            await reader.readuntil(b"\r\n")
            return b"".join(parts)
        length = _LENGTH.search(head)
        return await reader.readexactly(int(length[1]) if length else 0)
    except asyncio.IncompleteReadError:
        raise BrokenAnswer(head[:100].decode("latin-1")) from None


async def ask(port: int, request: bytes, timeout_s: float) -> Answer:
    """One request and its whole answer; the client leaves after `timeout_s`."""
    loop = asyncio.get_running_loop()
    sent, status, writer = loop.time(), NO_ANSWER, None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_HEAD_BYTES_MAX)
            writer.write(request)
            await writer.drain()
            code, head = await read_status(reader)
            await read_rest(reader, head)
            status = code
    except (TimeoutError, OSError):
        pass
    finally:
        if writer is not None:
            writer.transport.abort()
    return Answer(sent, loop.time(), status)


async def poisson(
    one: Callable[[], Awaitable[Answer]], *, per_s: float, seconds: float, rng: random.Random
) -> Sequence[Answer]:
    """Begin requests at random times for `seconds`, and wait until the last is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    due, tasks = loop.time(), []
    while (due := due + rng.expovariate(per_s)) < end:
        await asyncio.sleep(due - loop.time())
        tasks.append(asyncio.ensure_future(one()))
    return await asyncio.gather(*tasks)
