"""The service before a stand-in engine, whose speed is known and can be changed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.peers.running import started
from tests.api.server import Server, free_ports, running_server


@dataclass(frozen=True)
class StandIn:
    """A stand-in engine."""

    url: str

    def take(self, milliseconds: int) -> None:
        """From now on a page takes this long."""
        httpx.put(f"{self.url}/latency-ms/{milliseconds}").raise_for_status()

    def running(self) -> int:
        """Requests that it works on."""
        text = httpx.get(f"{self.url}/metrics").text
        found = re.search(r"num_requests_running\S* (\d+)", text)
        assert found
        return int(found[1])


@contextmanager
def stand_in(folder: Path, milliseconds: int, *options: str) -> Iterator[StandIn]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "benchmarks.standin", "--port", str(port)]
    command += ["--latency-ms", str(milliseconds), *options]
    with started(command, {}, port, folder / f"stand-in-{port}.log"):
        yield StandIn(f"http://127.0.0.1:{port}")


@contextmanager
def server_before(engine: StandIn, folder: Path, **settings: object) -> Iterator[Server]:
    # The stand-in reads no page, so the isolation self-test cannot pass.
    given: dict[str, Any] = {"engine": "vllm", "vllm_url": engine.url, "isolation_check": "warn"}
    with running_server(folder, **(given | settings)) as server:
        yield server
