"""Work that stops when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive

# Nginx's convention for "the client closed the request"; it stands in logs and metrics only.
CLIENT_CLOSED = 499


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


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
