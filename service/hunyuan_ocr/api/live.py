"""Answers that are made while they are sent, and dropped when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from hunyuan_ocr.api.context import RequestContext, context_of
from hunyuan_ocr.errors import DeadlineExceeded

# Nginx's convention for "the client closed the request"; it stands in logs and metrics only.
CLIENT_CLOSED = 499
_STALLED_S = 15.0


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run `work`; when the client leaves first, cancel it, wait until it is gone, raise ClientGone.

    The request's body must have been read to its end.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        await working
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


class LiveAnswer(Response):
    """An answer made while it is sent; `_respond` of a subclass makes it.

    All of it, the client's reading included, must be over `time_left_s` from now. A client that
    reads nothing at all for a while is taken for gone: it may hold the engine.
    """

    def __init__(self, media_type: str, time_left_s: float) -> None:
        super().__init__(media_type=media_type)
        self._time_left_s = time_left_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)

        async def send_to_a_reader(message: Message) -> None:
            try:
                async with asyncio.timeout(_STALLED_S):
                    await send(message)
            except TimeoutError:
                raise ClientGone from None

        try:
            async with asyncio.timeout(self._time_left_s):
                await unless_gone(receive, self._respond(context, send_to_a_reader))
        except TimeoutError:
            raise DeadlineExceeded from None
        except ClientGone:
            context.cancelled = True

    async def _respond(self, context: RequestContext, send: Send) -> None:
        raise NotImplementedError

    def _start(self, length: int | None) -> dict[str, object]:
        """The message that starts an answer of `length` bytes, or of who knows how many."""
        headers = MutableHeaders({"content-type": self.headers["content-type"]})
        if length is None:
            # Proxies hold streams back otherwise.
            headers["cache-control"] = "no-cache"
            headers["x-accel-buffering"] = "no"
        else:
            headers["content-length"] = str(length)
        return {"type": "http.response.start", "status": 200, "headers": headers.raw}


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
