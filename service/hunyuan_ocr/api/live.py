"""Answers that are made while they are sent, and dropped when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
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


class _Reader:
    """The client as one who takes what is sent: one timer, however many messages there are."""

    def __init__(self, send: Send, stalled: Callable[[], object]) -> None:
        """`stalled` is called when nothing was taken for a while of what was sent."""
        self._send = send
        self._stalled = stalled
        self._loop = asyncio.get_running_loop()
        self._waits_since: float | None = None
        self._timer = self._loop.call_later(_STALLED_S, self._look)

    async def send(self, message: Message) -> None:
        self._waits_since = self._loop.time()
        await self._send(message)
        self._waits_since = None

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        due = (now if self._waits_since is None else self._waits_since) + _STALLED_S
        if due <= now:
            self._stalled()
        else:
            self._timer = self._loop.call_at(due, self._look)


async def unless_gone(
    receive: Receive, send: Send, work: Callable[[Send], Coroutine[Any, Any, None]]
) -> None:
    """Run `work`, which sends; when the client leaves first, cancel it and raise ClientGone.

    One that takes nothing of what is sent for a while is taken for gone. The request's body must
    have been read to its end. Returns or raises when `work` is over.
    """
    leaving = asyncio.ensure_future(_disconnected(receive))
    reader = _Reader(send, leaving.cancel)
    working = asyncio.ensure_future(work(reader.send))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        await working
    finally:
        reader.close()
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


class LiveAnswer(Response):
    """An answer made while it is sent; `_respond` of a subclass makes it.

    All of it, the client's reading included, must be over `time_left_s` from now. A client that
    reads nothing at all for a while is taken for gone: it would hold the engine.
    """

    def __init__(self, media_type: str, time_left_s: float) -> None:
        super().__init__(media_type=media_type)
        self._time_left_s = time_left_s
        self._scope: asyncio.Timeout | None = None

    def _end_by(self, deadline: float) -> None:
        """All must be over by `deadline` of the event loop's clock, as is known now."""
        assert self._scope is not None  # noqa: S101
        self._scope.reschedule(deadline)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        try:
            async with asyncio.timeout(self._time_left_s) as self._scope:
                await unless_gone(receive, send, partial(self._respond, context))
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
