"""Traces: a provider of our own, never the process-wide one."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased


def tracer_provider(version: str, otlp_endpoint: str | None) -> TracerProvider:
    """Export spans to `otlp_endpoint` (base URL of an OTLP/HTTP collector), or record none."""
    resource = Resource.create({"service.name": "hunyuan-ocr", "service.version": version})
    if otlp_endpoint is None:
        return TracerProvider(resource=resource, sampler=ALWAYS_OFF, shutdown_on_exit=False)
    provider = TracerProvider(
        resource=resource, sampler=ParentBased(TraceIdRatioBased(1.0)), shutdown_on_exit=False
    )
    exporter = OTLPSpanExporter(endpoint=otlp_endpoint.rstrip("/") + "/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
