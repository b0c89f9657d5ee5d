"""What callers notice of a drain: refusals, and answers that end their connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hunyuan_ocr.traffic.drain import Drain

# A client that is still sending reads its answer only afterwards, so it is listened to this long.
_LINGER_S = 10.0
_CLOSE = (b"connection", b"close")


class DrainGate:
    """Counts the requests that bring pages, all those that are posted, and refuses new ones."""

    def __init__(self, app: ASGIApp, drain: Drain) -> None:
        self._app = app
        self._drain = drain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            with self._drain.request():
                await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class ConnectionEnds:
    """While the service drains, every answer tells its client to connect anew, so elsewhere.

    A connection that is closed while its client still sends is reset, and takes the answer with
    it. So before such an answer ends, the rest of the body is read and dropped.
    """

    def __init__(self, app: ASGIApp, drain: Drain) -> None:
        self._app = app
        self._drain = drain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received = closing = False

        async def receive_until_end() -> Message:
            nonlocal received
            message = await receive()
            received = not message.get("more_body")
            return message

        async def send_and_linger(message: Message) -> None:
            nonlocal closing
            if message["type"] == "http.response.start":
                if self._drain.begun:
                    MutableHeaders(scope=message)["Connection"] = "close"
                closing = _CLOSE in message["headers"]
            elif closing and not received and not message.get("more_body"):
                await send({**message, "more_body": True})
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LINGER_S):
                        while not received:
                            await receive_until_end()
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        await self._app(scope, receive_until_end, send_and_linger)
