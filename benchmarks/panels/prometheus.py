"""A real Prometheus over a service, the exporters beside it, and our rules."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.panels.last_week import write_last_week
from dashboards.generate import HERE
from tests.api.server import free_ports

SCRAPE_S = 5
_START_S = 30.0
# As a PodMonitor and Kubernetes would label them.
POD = {"namespace": "ocr", "pod": "hunyuan-ocr-0", "job": "hunyuan-ocr"}


@dataclass(frozen=True, slots=True)
class Prometheus:
    http: httpx.Client

    def query(self, expression: str) -> list[Any]:
        """The series of an instant query. Raises ValueError with what is wrong with it."""
        answer = self.http.get("/api/v1/query", params={"query": expression}).json()
        if answer["status"] != "success":
            raise ValueError(f"{expression}: {answer['error']}")
        found: list[Any] = answer["data"]["result"]
        return found

    def query_range(
        self, expression: str, begin: float, end: float
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Labels and values over time (Unix seconds) of each series."""
        asked = {"query": expression, "start": str(begin), "end": str(end), "step": str(SCRAPE_S)}
        answer = self.http.get("/api/v1/query_range", params=asked).json()
        return [
            (series["metric"], [(at, float(value)) for at, value in series["values"]])
            for series in answer["data"]["result"]
        ]

    def rules(self) -> list[dict[str, Any]]:
        groups = self.http.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def firing(self) -> set[str]:
        """Names of the alerts that fire now."""
        return {str(rule["name"]) for rule in self.rules() if rule.get("state") == "firing"}


@contextmanager
def prometheus(folder: Path, service: str, exporters: str) -> Iterator[Prometheus]:
    """Runs until left; `service` is the address of the management port, host and port."""
    program = shutil.which("prometheus")
    if program is None:
        raise SystemExit("no Prometheus: `make test-rules` installs Debian's")
    own, endpoint = {**POD, "instance": service}, {"endpoint": "engine"}
    configuration = {
        "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
        "rule_files": [str(HERE / "rules.yaml")],
        "scrape_configs": [
            _job("service", "/metrics", service, own),
            _job("engine", "/metrics/engine", service, own | endpoint),
            {**_job("exporters", "/metrics", exporters, {}), "honor_labels": True},
        ],
    }
    file = folder / "prometheus.yaml"
    file.write_text(json.dumps(configuration), "utf-8")  # JSON is YAML
    data = folder / "data"
    write_last_week(data, {**own, "endpoint": "service"})
    (port,) = free_ports(1)
    words = [
        program, f"--config.file={file}", f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with (
        subprocess.Popen(words, stderr=subprocess.DEVNULL) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http,
    ):
        try:
            _until_ready(http)
            yield Prometheus(http)
        finally:
            process.terminate()


def _job(name: str, path: str, address: str, labels: dict[str, str]) -> dict[str, Any]:
    """`job` and the like are set on what was scraped: two endpoints of a pod share them."""
    return {
        "job_name": name,
        "metrics_path": path,
        "static_configs": [{"targets": [address], "labels": {"endpoint": name}}],
        "relabel_configs": [
            {"target_label": label, "replacement": value} for label, value in labels.items()
        ],
    }


def _until_ready(http: httpx.Client) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        try:
            if http.get("/-/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise SystemExit("Prometheus does not start")
