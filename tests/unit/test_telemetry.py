"""What telemetry says, and above all what it does not: nothing that a caller sent."""

from __future__ import annotations

import json
import logging
import sys
import time

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.types import Message, Receive, Scope, Send

from hunyuan_ocr.api.context import context_of
from hunyuan_ocr.api.middleware import RequestScope
from hunyuan_ocr.telemetry.logs import JsonFormatter
from hunyuan_ocr.telemetry.metrics import Metrics
from hunyuan_ocr.telemetry.stages import Stage
from hunyuan_ocr.telemetry.usage_records import OFF, UsageRecords

SECRET = "hunter2"


async def serve(
    app: object, metrics: Metrics, provider: TracerProvider, flags: bytes = b"01"
) -> list[Message]:
    """What a request to `app` was answered with, whose caller's trace has these `flags`."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/ocr",
        "headers": [(b"traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-" + flags)],
    }
    outer = RequestScope(
        app,  # type: ignore[arg-type]
        metrics=metrics,
        tracer=provider.get_tracer("test"),
        usage_records=UsageRecords(OFF, metrics.requests.usage_lost),
        clock=time.monotonic,
    )
    await outer(scope, receive, send)
    return sent


async def test_spans_are_children_of_the_callers_and_hold_no_words(
    exporter: InMemorySpanExporter, provider: TracerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with context_of(scope).stages.stage(Stage.ENGINE):
            raise KeyError(SECRET)

    with caplog.at_level(logging.INFO, logger="hunyuan_ocr"):
        sent = await serve(app, Metrics("test"), provider)
    assert sent[0]["status"] == 500
    stage, request = exporter.get_finished_spans()
    assert (stage.name, request.name) == ("engine", "request")
    assert stage.parent is not None
    assert stage.parent.span_id == request.context.span_id
    assert format(request.context.trace_id, "x") == "1" * 32
    for record in (stage.to_json(), request.to_json(), repr(sent)):
        assert SECRET not in record
    formatted = [JsonFormatter().format(record) for record in caplog.records]
    assert not any(SECRET in line for line in formatted)
    assert json.loads(formatted[0])["exception"] == "KeyError"
    assert json.loads(formatted[-1])["code"] == "internal_error"


async def test_an_answer_that_breaks_is_recorded(provider: TracerProvider) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise KeyError(SECRET)

    metrics = Metrics("test")
    with pytest.raises(ConnectionAbortedError):
        await serve(app, metrics, provider)
    found = [
        sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "hunyuan_ocr_errors_total" and sample.labels == {"code": "internal_error"}
    ]
    assert found == [1]


def test_a_log_line_is_one_json_object() -> None:
    try:
        raise ValueError(SECRET)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, "a\nb", (), sys.exc_info())
    record.fields = {"pages": 3}
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert SECRET not in line
    assert json.loads(line)["pages"] == 3
