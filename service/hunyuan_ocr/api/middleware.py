"""What surrounds every request: its id, trace, timing, log line, limits on the body."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Callable
from functools import partial

from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hunyuan_ocr.api.callers import ENTRANCES
from hunyuan_ocr.api.context import RequestContext, attach, context_of
from hunyuan_ocr.api.live import CLIENT_CLOSED
from hunyuan_ocr.api.problems import as_ocr_error, problem_response
from hunyuan_ocr.api.usage_record import usage_record
from hunyuan_ocr.errors import BodyTooLarge, OcrError, RequestTimeout
from hunyuan_ocr.telemetry.logs import LOGGER
from hunyuan_ocr.telemetry.metrics import Metrics
from hunyuan_ocr.telemetry.stages import StageRecorder
from hunyuan_ocr.telemetry.usage_records import UsageRecords
from hunyuan_ocr.traffic.byte_budget import ByteBudget

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TRACE_CONTEXT = TraceContextTextMapPropagator()
# Pieces of bodies taken at each turn of the event loop: refusals wait for no more than these.
_PIECES_A_TURN = 4
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestScope:
    """The outermost layer: nothing passes it without an id, a log line and a metric."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        tracer: Tracer,
        usage_records: UsageRecords,
        clock: Callable[[], float],
    ) -> None:
        self._app = app
        self._metrics = metrics.requests
        self._new_stages = partial(StageRecorder, metrics, tracer, clock)
        self._usage_records = usage_records
        self._tracer = tracer
        self._clock = clock
        self._log = logging.getLogger(LOGGER)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given_id = headers.get("x-request-id", "")
        context = RequestContext(
            request_id=given_id if _SANE_ID.fullmatch(given_id) else secrets.token_hex(8),
            stages=self._new_stages(),
            clock=self._clock,
            started=self._clock(),
        )
        attach(scope, context)
        with self._tracer.start_as_current_span(
            "request",
            # Without `tracestate`: that is a caller's text.
            _TRACE_CONTEXT.extract({"traceparent": headers.get("traceparent", "")}),
            SpanKind.SERVER,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                await self._serve(scope, receive, send, context)
            finally:
                self._record(scope, context, span)

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, context: RequestContext
    ) -> None:
        """Run the app; an error it let through becomes a problem, or a cut if it had begun."""
        complete = False

        async def send_with_headers(message: Message) -> None:
            nonlocal complete
            complete = message["type"] == "http.response.body" and not message.get("more_body")
            if message["type"] == "http.response.start":
                context.status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = context.request_id
                if timing := context.stages.server_timing():
                    headers["Server-Timing"] = timing
                headers.update(context.headers())
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception as error:  # noqa: BLE001 - the request boundary
            # Starlette wraps what is raised once an answer has begun.
            known = as_ocr_error(error.__cause__ if context.status and error.__cause__ else error)
            context.code = known.code
            if type(known) is OcrError:
                self._log.error(
                    "unexpected error",
                    exc_info=error,
                    extra={"fields": {"request_id": context.request_id}},
                )
            if context.status and not complete:
                raise ConnectionAbortedError from None  # so that the server cuts the answer short
            if not context.status:
                answer = problem_response(known, scope)
                await answer(scope, receive, send_with_headers)
            # Its frames refer to it: thousands of such circles would have to be collected.
            error.__traceback__ = None

    def _record(self, scope: Scope, context: RequestContext, span: Span) -> None:
        status = CLIENT_CLOSED if context.cancelled else context.status
        route, method = _route(scope), scope["method"] if scope["method"] in _METHODS else "other"
        trace_id = format(span.get_span_context().trace_id, "032x")
        if recorded := span.is_recording():
            _describe(span, route, method, status, context.code)
        self._metrics.seconds.labels(route, method, str(status), context.usage.priority).observe(
            context.elapsed_s(), {"trace_id": trace_id} if recorded else None
        )
        if context.code:
            self._metrics.errors.labels(context.code).inc()
        if context.cancelled:
            self._metrics.cancelled.inc()
        if method == "POST" and route in ENTRANCES:
            self._usage_records.write(usage_record(context, route, status))
        fields = {
            "request_id": context.request_id,
            "trace_id": trace_id,
            "tenant": context.tenant,
            "route": route,
            "method": method,
            "status": status,
            "code": context.code,
            "total_ms": context.elapsed_ms(),
            "stages_ms": {s: context.stages.milliseconds(s) for s in context.stages.seconds},
            **context.fields,
        }
        self._log.info("request", extra={"fields": fields})


def _route(scope: Scope) -> str:
    """The route's template, never the path as sent: that would be a label per caller's whim."""
    path: str = scope["path"] if scope["path"] in ENTRANCES else "unmatched"
    return getattr(scope.get("route"), "path", path)


def _describe(span: Span, route: str, method: str, status: int, code: str | None) -> None:
    """Tell a span of OpenTelemetry's names for HTTP."""
    span.set_attribute("http.request.method", method if method in _METHODS else "_OTHER")
    span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)
    if code:
        span.set_attribute("error.type", code)
    if status >= OcrError.status:
        span.set_status(StatusCode.ERROR)


class BodyLimits:
    """Bounds the size, the time and the memory of a body while it arrives."""

    def __init__(
        self, app: ASGIApp, *, max_bytes: int, timeout_s: float, budget: ByteBudget
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._budget = budget
        self._turns = asyncio.Semaphore(_PIECES_A_TURN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "0")
        if length.isdecimal() and int(length) > self._max_bytes:
            raise _too_large(self._max_bytes)  # before a byte of it was read
        body = _CountedBody(
            receive,
            context_of(scope).tenant,
            max_bytes=self._max_bytes,
            timeout_s=self._timeout_s,
            budget=self._budget,
            turns=self._turns,
        )
        try:
            # Room for all of it before any is asked for: bodies that are refused half-way would
            # keep those out that could be read.
            if length.isdecimal():
                body.take(int(length))
            await self._app(scope, body.receive, send)
        finally:
            body.give_back()


class _CountedBody:
    """One request's body; once it is complete, `receive` only waits for the disconnect."""

    def __init__(
        self,
        receive: Receive,
        tenant: str,
        *,
        max_bytes: int,
        timeout_s: float,
        budget: ByteBudget,
        turns: asyncio.Semaphore,
    ) -> None:
        self._receive = receive
        self._tenant = tenant
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._budget = budget
        self._turns = turns
        self._deadline: float | None = None
        self._complete = False
        self._taken = 0
        self._received = 0

    def take(self, size: int) -> None:
        """Raises QueueFull."""
        if size > 0:
            self._budget.take(self._tenant, size)
            self._taken += size

    def give_back(self) -> None:
        self._budget.give_back(self._tenant, self._taken)

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._timeout_s
        try:
            async with asyncio.timeout_at(self._deadline):
                if self._received:  # most bodies are one piece
                    async with self._turns:
                        await asyncio.sleep(0)
                message = await self._receive()
        except TimeoutError:
            raise RequestTimeout(f"the limit is {self._timeout_s:g} s") from None
        if message["type"] == "http.request":
            self._count(len(message.get("body", b"")))
            self._complete = not message.get("more_body", False)
        return message

    def _count(self, size: int) -> None:
        self._received += size
        if self._received > self._max_bytes:
            raise _too_large(self._max_bytes)
        self.take(self._received - self._taken)


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the limit is {max_bytes / 1e6:g} MB")
