"""What callers notice of a drain: refusals, and answers that end their connection; and others
that do."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers, MutableHeaders
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

    So do answers to clients that still wait for `100 Continue` (RFC 9110, 10.1.1): on a connection
    that went on they would have to send the body that nobody wants.

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
        asked = received = closing = False

        async def receive_until_end() -> Message:
            nonlocal asked, received
            asked = True
            message = await receive()
            received = not message.get("more_body")
            return message

        async def send_and_linger(message: Message) -> None:
            nonlocal closing
            if message["type"] == "http.response.start":
                if self._drain.begun or (not asked and _waits_to_send(scope)):
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


def _waits_to_send(scope: Scope) -> bool:
    """Whether the client sends its body only once it is told to."""
    return Headers(scope=scope).get("expect", "").lower() == "100-continue"
