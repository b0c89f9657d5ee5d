"""Traces: a provider of our own, never the process-wide one."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NoOpTracerProvider, TracerProvider


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
    """Send what is left, if anything was recorded."""
    if isinstance(provider, trace.TracerProvider):
        provider.shutdown()
