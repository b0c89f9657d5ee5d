"""A collector of traces that keeps what it is sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

# Spans are sent every five seconds.
_ARRIVED_WITHIN_S = 15.0


@dataclass
class Collector:
    """What was sent to `url`, as it came."""

    url: str
    bodies: list[bytes] = field(default_factory=list)

    def spans(self) -> list[Span]:
        requests = (ExportTraceServiceRequest.FromString(body) for body in tuple(self.bodies))
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def trace(self, trace_id: str) -> list[Span]:
        """The spans of a trace, once that of its request is there, which ends last."""
        deadline = time.monotonic() + _ARRIVED_WITHIN_S
        while time.monotonic() < deadline:
            found = [span for span in self.spans() if span.trace_id.hex() == trace_id]
            if any(span.name == "request" for span in found):
                return found
            time.sleep(0.1)
        raise AssertionError(f"no trace {trace_id}")


def attributes(span: Span) -> dict[str, object]:
    """Its attributes; a list as a tuple."""
    found: dict[str, object] = {}
    for item in span.attributes:
        kind = item.value.WhichOneof("value")
        value = getattr(item.value, str(kind))
        found[item.key] = (
            tuple(one.string_value for one in value.values) if kind == "array_value" else value
        )
    return found


@contextmanager
def collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            found.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """It says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
