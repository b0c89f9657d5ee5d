"""What a connection may do before it has made a request: limits below any application."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hunyuan_ocr.errors import BadRequest, HeadersTooLarge, OcrError, RequestTimeout


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one listener bears: connections at once, bytes and seconds of a request's headers."""

    connections: int
    header_bytes: int
    header_timeout_s: float


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits; silent and endless connections cost nothing for long."""

    limits: ClassVar[ConnectionLimits]
    _header_bytes = 0
    # Set while the headers of a request are awaited.
    _headers_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.abort()
        else:
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._headers_due is None:
            self._await_headers()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        # What came in one piece with its end was not counted on the way.
        if len(self.url) + sum(len(n) + len(v) + 4 for n, v in self.headers) > self._most:
            self._refuse(self._too_large())
            raise ValueError("headers too large")  # ends the parsing
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._headers_due is not None:
            self._header_bytes += len(data)
            if self._header_bytes > self._most:
                self._refuse(self._too_large())

    @property
    def _most(self) -> int:
        return self.limits.header_bytes

    def _too_large(self) -> OcrError:
        return HeadersTooLarge(f"the limit is {self._most} bytes")

    def send_400_response(self, msg: str) -> None:
        self._refuse(BadRequest(msg))

    def _await_headers(self) -> None:
        self._header_bytes = 0
        self._headers_due = self.loop.call_later(self.limits.header_timeout_s, self._too_late)

    def _too_late(self) -> None:
        if self._answer_due:  # to an earlier request, which is not to be lost
            self._await_headers()
        else:
            self._refuse(RequestTimeout("the headers did not arrive in time"))

    @property
    def _answer_due(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _stop_waiting(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _refuse(self, error: OcrError) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            if not self._answer_due:  # a caller would take it for the answer to that
                self.transport.write(_bare_problem(error))
            self.transport.close()


def bounded(limits: ConnectionLimits) -> type[BoundedProtocol]:
    """The protocol class of one listener."""
    return type("BoundedProtocol", (BoundedProtocol,), {"limits": limits})


def _bare_problem(error: OcrError) -> bytes:
    """A whole answer to what is no request yet, and so has no id and no log line."""
    body = json.dumps(
        {"title": error.title, "status": error.status, "code": error.code, "detail": error.detail}
    )
    head = (
        f"HTTP/1.1 {error.status} {error.title}",
        "content-type: application/problem+json",
        f"content-length: {len(body)}",
        "connection: close",
    )
    return "\r\n".join((*head, "", body)).encode()
