"""One deployment, over HTTP."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp

from loadtest.outcomes import Outcome, Reply
from loadtest.routes import Request, Route, StreamedError, has_text, judge

# Servers close connections that were idle for five seconds: such a one must not be taken again.
_KEEP_ALIVE_S = 3.0
_READ_BUFFER_BYTES = 1 << 20


class Target:
    """Sends prepared requests in turn."""

    def __init__(
        self, http: aiohttp.ClientSession, url: str, route: Route, requests: Sequence[Request]
    ) -> None:
        self._http = http
        self._url = url.rstrip("/") + route
        self._route = route
        self._requests = itertools.cycle(requests)

    async def send(self) -> Reply:
        """The next request, to the end of its answer."""
        request = next(self._requests)
        headers = {"Content-Type": request.media_type}
        try:
            async with self._http.post(
                self._url, data=io.BytesIO(request.body), headers=headers
            ) as response:
                if response.status == 200 and response.content_type == "text/event-stream":
                    return await _streamed(response)
                first_at = asyncio.get_running_loop().time()
                body = await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            return Reply(Outcome.UNREACHABLE)
        except (aiohttp.ClientError, OSError, ValueError):
            return Reply(Outcome.BROKEN)
        reply = judge(self._route, response.status, body, response.headers.get("Retry-After"))
        if reply.outcome is not Outcome.ANSWERED:
            return reply
        return Reply(reply.outcome, reply.code, first_at, degraded=reply.degraded)


async def _streamed(response: aiohttp.ClientResponse) -> Reply:
    """Read events to the end, which `[DONE]` must have announced."""
    first_at, done = None, False
    try:
        async for line in response.content:
            text = has_text(line)  # of every line: streams fail after some text, too
            if text and first_at is None:
                first_at = asyncio.get_running_loop().time()
            done = done or line.startswith(b"data: [DONE]")
    except StreamedError as error:
        return Reply(Outcome.FAILED, str(error))
    if not done:
        return Reply(Outcome.BROKEN)
    if first_at is None:
        return Reply(Outcome.FAILED, "no text")
    return Reply(Outcome.ANSWERED, first_at=first_at)


@asynccontextmanager
async def connected(
    url: str, route: Route, requests: Sequence[Request], api_key: str | None = None
) -> AsyncIterator[Target]:
    """A target with connections of its own, as many as are in flight."""
    headers = {"Accept": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
        timeout=aiohttp.ClientTimeout(total=None),
        headers=headers,
        read_bufsize=_READ_BUFFER_BYTES,
        auto_decompress=True,
    ) as http:
        yield Target(http, url, route, requests)
