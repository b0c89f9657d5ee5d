"""What the engine is told of a trace, and what the trace is told of the engine."""

from __future__ import annotations

import socket
import time
from contextlib import aclosing

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags, use_span

from hunyuan_ocr.errors import EngineUnavailable
from hunyuan_ocr.telemetry.engine_spans import NO_TRACES
from hunyuan_ocr.telemetry.tracing import shut_down, tracer_provider
from tests.unit.test_vllm import StandIn, read, ready, request, running, until


async def test_a_request_to_the_engine_carries_its_spans_context(
    exporter: InMemorySpanExporter, provider: TracerProvider
) -> None:
    stand_in, tracer = StandIn(), provider.get_tracer("test")
    async with running(stand_in, tracer=tracer) as engine:
        await until(lambda: ready(engine))
        # The self-test is nobody's request.
        assert set(stand_in.traceparents) <= {None}
        assert not exporter.get_finished_spans()
        with tracer.start_as_current_span("engine") as stage:
            await read(engine)
    call, _ = exporter.get_finished_spans()
    assert call.parent is not None
    assert call.parent.span_id == stage.get_span_context().span_id
    trace_id, span_id = call.context.trace_id, call.context.span_id
    flags = int(call.context.trace_flags)
    assert stand_in.traceparents[-1] == f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}"
    assert flags & TraceFlags.SAMPLED
    assert call.name == "chat m"
    assert call.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 1,
        "gen_ai.response.finish_reasons": ("stop",),
        "server.address": "127.0.0.1",
        "server.port": int(engine.http.base_url.rpartition(":")[2]),
    }


async def test_an_engine_that_fails_or_is_left_ends_its_span(
    exporter: InMemorySpanExporter, provider: TracerProvider
) -> None:
    stand_in, tracer = StandIn(), provider.get_tracer("test")
    async with running(stand_in, tracer=tracer) as engine:
        await until(lambda: ready(engine))
        with tracer.start_as_current_span("engine"):
            async with aclosing(engine.stream(request())) as events:
                await anext(events)
            stand_in.status = 500
            with pytest.raises(EngineUnavailable):
                await read(engine)
    left, failed, _ = exporter.get_finished_spans()
    assert left.status.status_code is StatusCode.UNSET
    assert failed.status.status_code is StatusCode.ERROR
    assert dict(failed.attributes or {})["error.type"] == "engine_unavailable"
    assert not failed.events  # exceptions may quote what was sent


@pytest.mark.parametrize("flags", [0, 1])
async def test_without_a_collector_a_callers_trace_is_passed_on(flags: int) -> None:
    stand_in = StandIn()
    caller = SpanContext(0xA1, 0xB2, is_remote=True, trace_flags=TraceFlags(flags))
    async with running(stand_in, tracer=NO_TRACES) as engine:
        await until(lambda: ready(engine))
        with use_span(NonRecordingSpan(caller)):
            await read(engine)
    assert stand_in.traceparents[-1] == f"00-{0xA1:032x}-{0xB2:016x}-{flags:02x}"


@pytest.mark.parametrize("hangs", [True, False])
def test_a_collector_that_is_down_holds_up_nobody(hangs: bool) -> None:
    """One that takes connections and says nothing, and one that is not there."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if hangs:
            listening.listen(16)
        provider = tracer_provider("test", f"http://127.0.0.1:{listening.getsockname()[1]}")
        tracer, slowest_s = provider.get_tracer("test"), 0.0
        for _ in range(5000):  # more than wait at once
            began = time.perf_counter()
            tracer.start_span("page").end()
            slowest_s = max(slowest_s, time.perf_counter() - began)
        began = time.perf_counter()
        shut_down(provider)
        assert time.perf_counter() - began < 5
    assert slowest_s < 1
