"""Spans of requests to the engine, by OpenTelemetry's names for generative AI; never their text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from opentelemetry.trace import (
    INVALID_SPAN,
    NoOpTracer,
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from hunyuan_ocr.errors import OcrError

NO_TRACES = NoOpTracer()
_OPERATION = "chat"
_PROVIDER = "vllm"
_TRACE_CONTEXT = TraceContextTextMapPropagator()


class EngineCall:
    """One request to the engine; `headers` tell it the trace that it belongs to."""

    def __init__(self, span: Span) -> None:
        self._span = span
        carrier: dict[str, str] = {}
        _TRACE_CONTEXT.inject(carrier, set_span_in_context(span))
        self.headers: Mapping[str, str] = carrier

    def finished(self, prompt_tokens: int, output_tokens: int, reason: str | None) -> None:
        """The answer is there, with the tokens that the engine counted."""
        if not self._span.is_recording():
            return
        self._span.set_attribute("gen_ai.usage.input_tokens", prompt_tokens)
        self._span.set_attribute("gen_ai.usage.output_tokens", output_tokens)
        if reason is not None:
            self._span.set_attribute("gen_ai.response.finish_reasons", (reason,))


class EngineSpans:
    """Makes a span of each request to the engine at `base_url`."""

    def __init__(self, tracer: Tracer, base_url: str) -> None:
        self._tracer = tracer
        address = urlsplit(base_url)
        self._attributes: dict[str, str | int] = {
            "gen_ai.operation.name": _OPERATION,
            "gen_ai.provider.name": _PROVIDER,
            "server.address": address.hostname or "",
            "server.port": address.port or (443 if address.scheme == "https" else 80),
        }

    @contextmanager
    def call(self, model: str) -> Iterator[EngineCall]:
        """A request to the engine is inside; a child of the current span, if there is one.

        It does not become the current span itself: generators may use this.
        """
        span: Span = INVALID_SPAN
        if get_current_span().get_span_context().is_valid:
            span = self._tracer.start_span(
                f"{_OPERATION} {model}",
                kind=SpanKind.CLIENT,
                attributes={**self._attributes, "gen_ai.request.model": model},
            )
        try:
            yield EngineCall(span)
        except OcrError as error:
            span.set_attribute("error.type", error.code)
            span.set_status(StatusCode.ERROR)
            raise
        finally:
            span.end()
