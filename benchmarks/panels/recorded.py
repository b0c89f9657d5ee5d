"""Exporters that are not here, played from the lists of what they emit: DCGM's, Kubernetes' own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from dashboards.generate import HERE

LISTS = ("dcgm-exporter-4.8", "kube-state-metrics-2", "cadvisor")
# What boards select by; whatever else a series has is its own name.
_LABELS: Mapping[str, str] = {
    "namespace": "ocr",
    "pod": "hunyuan-ocr-0",
    "container": "vllm",
    "condition": "true",
    "horizontalpodautoscaler": "hunyuan-ocr",
    "scaletargetref_kind": "Deployment",
    "scaletargetref_name": "hunyuan-ocr",
    "resource": "memory",
    "unit": "byte",
}


def text(now_s: float) -> str:
    """A scrape of them all: counters grow by one a second, gauges stand."""
    lines = []
    for name in LISTS:
        for line in (HERE / "golden" / f"{name}.txt").read_text("utf-8").splitlines():
            metric, kind, *labels = line.split()
            pairs = ",".join(f'{label}="{_LABELS.get(label, label)}"' for label in labels)
            lines.append(f"{metric}{{{pairs}}} {now_s if kind == 'counter' else 1}")
    return "\n".join(lines) + "\n"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = text(time.monotonic()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """One a scrape would be too many."""


@contextmanager
def exporters() -> Iterator[int]:
    """Serves them; yields the port."""
    with HTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
