"""The connection to vLLM: pooled, cancellable, and every failure one of our errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp

from hunyuan_ocr.errors import (
    EngineOverloaded,
    EngineRejected,
    EngineStarting,
    EngineUnavailable,
    Unavailable,
)

T = TypeVar("T")

# vLLM closes idle connections after 5 s: ours must be given up earlier.
_IDLE_CONNECTION_S = 4.0
_CONNECT_TIMEOUT_S = 2.0
_RETRY_AFTER_S = 2.0


class VllmHttp:
    """Requests to one server; used by one event loop, between `open` and `close`."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._session: aiohttp.ClientSession | None = None
        self._waiting: set[asyncio.Timeout] = set()
        self._abort_reason: Unavailable = EngineUnavailable()

    def open(self) -> None:
        self._session = aiohttp.ClientSession(
            base_url=self.base_url,
            # The callers of this class bound what is in flight; a limit here would only hide it.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_CONNECTION_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
            # Answers are forwarded byte for byte, so they must come as they are.
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
        )

    async def close(self) -> None:
        self.abort(EngineUnavailable("the service is shutting down"))
        if self._session is not None:
            await self._session.close()

    def abort(self, reason: Unavailable) -> None:
        """End everything that waits for the engine now; each raises `reason`."""
        self._abort_reason = reason
        now = asyncio.get_running_loop().time()
        for scope in tuple(self._waiting):
            scope.reschedule(now)

    @property
    def waiting(self) -> int:
        """How many posts wait for the engine at this moment."""
        return len(self._waiting)

    async def get(self, path: str) -> str:
        """The text of a 200 answer. Raises aiohttp.ClientError."""
        async with self._opened.get(path, raise_for_status=True) as response:
            return await response.text()

    async def ask(self, path: str, body: Mapping[str, object]) -> None:
        """Send a request that `abort` leaves alone, and drop its answer.

        Raises aiohttp.ClientError.
        """
        async with self._opened.post(path, json=body) as response:
            await response.read()

    @asynccontextmanager
    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer of any status whose body is still to come.

        Leaving before its end closes the connection, which tells vLLM to stop generating. Raises
        EngineUnavailable where the connection fails or breaks, also while inside.
        """
        response: aiohttp.ClientResponse | None = None
        try:
            response = await self._unless_aborted(self._send(path, body, headers))
            yield response
        except (aiohttp.ClientError, ConnectionError) as error:
            raise EngineUnavailable(
                "the connection to the engine broke", retry_after_s=_RETRY_AFTER_S
            ) from error
        finally:
            if response is not None:
                response.close() if not response.content.at_eof() else response.release()

    async def read_some(self, response: aiohttp.ClientResponse) -> bytes:
        """The next bytes of an answer, b"" at its end. Raises what `post` does."""
        return await self._unless_aborted(response.content.readany())

    async def read_all(self, response: aiohttp.ClientResponse) -> bytes:
        """The rest of an answer. Raises what `post` does."""
        return await self._unless_aborted(response.read())

    async def _send(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        try:
            return await self._opened.post(path, data=body, headers=headers)
        except aiohttp.ServerDisconnectedError:
            # A pooled connection that the server was just closing; nothing had begun on it.
            return await self._opened.post(path, data=body, headers=headers)

    async def _unless_aborted(self, waiting: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(None) as scope:
                self._waiting.add(scope)
                try:
                    return await waiting
                finally:
                    self._waiting.discard(scope)
        except TimeoutError:
            if scope.expired():
                raise self._abort_reason.for_caller() from None
            raise EngineUnavailable from None  # aiohttp's own: no connection in time

    @property
    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise EngineStarting("the engine was not started")
        return self._session


def refused(status: int) -> Exception:
    """What an answer with an error status means for the page that was sent."""
    if status in (400, 413, 422):
        return EngineRejected("the engine refused the request as it was made")
    if status == 404:
        return EngineUnavailable("the engine does not serve the model asked for")
    kind = EngineOverloaded if status in (429, 503) else EngineUnavailable
    return kind(f"the engine answered {status}", retry_after_s=_RETRY_AFTER_S)
