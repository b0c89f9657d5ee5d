"""OpenTelemetry's own collector, which takes spans by HTTP and hands them on."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import yaml

from scripts.chart.tools import tool
from tests.api.server import free_port

_STARTED_WITHIN_S = 15.0


@contextmanager
def otelcol(folder: Path, sink: str) -> Iterator[str]:
    """Its URL; what it takes it hands on to the OTLP/HTTP receiver at `sink`, and its log says
    what it refuses."""
    port = free_port()
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "processors": {"batch": {"timeout": "200ms"}},
        "exporters": {"otlphttp": {"endpoint": sink, "compression": "none"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {
                "traces": {
                    "receivers": ["otlp"],
                    "processors": ["batch"],
                    "exporters": ["otlphttp"],
                }
            },
        },
    }
    file, log = folder / "otelcol.yaml", folder / "otelcol.log"
    file.write_text(yaml.safe_dump(config), "utf-8")
    url = f"http://127.0.0.1:{port}"
    with (
        log.open("wb") as out,
        subprocess.Popen([tool("otelcol"), "--config", f"file:{file}"], stderr=out) as process,
    ):
        try:
            _started(process, url, log)
            yield url
        finally:
            process.terminate()


def _started(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + _STARTED_WITHIN_S
    while process.poll() is None and time.monotonic() < until:
        try:
            httpx.get(url)
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(log.read_text("utf-8"))
