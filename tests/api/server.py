"""A real server process for tests: `hunyuan-ocr serve` on ports of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

START_TIMEOUT_S = 60.0
Command = Sequence[str | Path]


@dataclass(frozen=True)
class Server:
    """A running server; `log` is the file its JSON lines go to, `usage` its usage records'."""

    url: str
    management_url: str
    log: Path
    usage: Path
    pid: int

    def client(self, **headers: str) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=headers, timeout=120)

    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]

    def log_of(self, request_id: str, wait_s: float = 5.0) -> dict[str, Any]:
        """The request's own log line; it is written after the answer was sent."""
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            for line in self.log_lines():
                if line["message"] == "request" and line["request_id"] == request_id:
                    return line
            time.sleep(0.05)
        raise AssertionError(f"no log line for {request_id}")

    def usage_records(self, count: int, wait_s: float = 5.0) -> list[dict[str, Any]]:
        """All records, once there are `count`: each is written after its answer was sent."""
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            text = self.usage.read_text("utf-8")
            if text.count("\n") >= count:
                return [json.loads(line) for line in text.splitlines()]
            time.sleep(0.05)
        raise AssertionError(f"{text.count(chr(10))} usage records and not {count}")

    def metric(self, name: str) -> float:
        """The sum over all label values of a sample name."""
        text = httpx.get(f"{self.management_url}/metrics").text
        values = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)", text, re.MULTILINE)
        assert values, f"no metric {name}"
        return sum(map(float, values))

    def rss_megabytes(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return int(found[1]) / 1e3

    def peak_rss_megabytes(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) / 1e3


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def free_port() -> int:
    return free_ports(1)[0]


@contextlib.contextmanager
def running_server(
    folder: Path, *, probe: str = "readyz", command: Command | None = None, **settings: object
) -> Iterator[Server]:
    """Start a server with `settings`, wait until `probe` says yes, stop it with SIGTERM.

    `command` instead of `hunyuan-ocr serve`.
    A server that does not leave by itself within a few seconds fails the test.
    """
    port, management_port = free_ports(2)
    usage = folder / f"usage-{port}.jsonl"
    ports = {"port": port, "management_port": management_port}
    given = {"usage_records": usage, **ports, **settings}
    env = {k: v for k, v in os.environ.items() if not k.startswith("HYOCR_")}
    env |= {f"HYOCR_{name.upper()}": str(value) for name, value in given.items()}
    log = folder / f"server-{port}.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command or [Path(sys.executable).parent / "hunyuan-ocr", "serve"],
            env=env,
            stderr=stderr,
        )
    server = Server(
        f"http://127.0.0.1:{port}", f"http://127.0.0.1:{management_port}", log, usage, process.pid
    )
    try:
        _wait(server, process, probe)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
    assert code == 0, log.read_text("utf-8")[-2000:]


def _wait(server: Server, process: subprocess.Popen[bytes], probe: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, server.log.read_text("utf-8")[-2000:]
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{server.management_url}/{probe}").status_code == 200:
                return
        time.sleep(0.1)
    raise AssertionError(
        f"/{probe} never said yes: {httpx.get(f'{server.management_url}/{probe}').text}"
    )
