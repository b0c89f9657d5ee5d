"""Traces: a provider of our own, never the process-wide one.

Spans wait in a bounded queue and are sent by a thread: with the collector down they are dropped,
and nobody waits for it.
"""

from __future__ import annotations

import threading

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NoOpTracerProvider, TracerProvider

_SHUT_DOWN_WITHIN_S = 3.0


def tracer_provider(version: str, otlp_endpoint: str | None) -> TracerProvider:
    """Export spans to `otlp_endpoint` (base URL of an OTLP/HTTP collector), or record none.

    A caller's sampling decision (`traceparent`) is followed; without one all is recorded.
    """
    if otlp_endpoint is None:
        return NoOpTracerProvider()
    resource = Resource.create({"service.name": "hunyuan-ocr", "service.version": version})
    provider = trace.TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=otlp_endpoint.rstrip("/") + "/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def shut_down(provider: TracerProvider) -> None:
    """Send what is left, if anything was recorded, as far as that is done within seconds."""
    if isinstance(provider, trace.TracerProvider):
        # The SDK itself would wait half a minute for a collector that hangs.
        ending = threading.Thread(target=provider.shutdown, daemon=True)
        ending.start()
        ending.join(_SHUT_DOWN_WITHIN_S)
