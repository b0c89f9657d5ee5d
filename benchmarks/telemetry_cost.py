"""What telemetry costs: CPU of the service for a request, with all of it on against none.

    make figure NAME=telemetry-cost
    python -m benchmarks.telemetry_cost [--pairs N]

Two servers stand before a stand-in engine that answers at once, and get the same pages in turn, in
another order each time; a pair's ratio is that of their CPU a page. CPU is that of all processes
of a server, those that decode included, from before the first request until its last span was
sent. On: metrics and a scrape a run, traces of every request to a collector, a log line and a
usage record a request, both to files. Off: what `benchmarks/without_telemetry.py` leaves out.
`cpu_ratio` is the median over pairs of requests with one page to /v1/ocr, `interval` its 95 %
bootstrap interval; `chat` is the same for chats that are passed through, which cost the service
least.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import uvloop

from benchmarks.open_loop import read_rest, read_status
from benchmarks.overhead import chat_request, cores, interval, page, stand_in
from benchmarks.peers.running import on_core
from benchmarks.processes import tree_cpu_s
from tests.api.otlp import collector
from tests.api.server import Server, running_server

PAIRS = 12
IN_FLIGHT = 8
PAGES, CHATS = 120, 1500
# Spans are sent every five seconds.
SETTLE_S = 5.5
_OFF = [sys.executable, "-m", "benchmarks.without_telemetry"]


@dataclass(frozen=True, slots=True)
class Load:
    """So many requests of one kind in a run."""

    request: bytes
    count: int


def loads() -> dict[str, Load]:
    body = page()
    head = (
        "POST /v1/ocr?task=text HTTP/1.1\r\nHost: benchmark\r\nContent-Type: image/jpeg\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return {"page": Load(head.encode() + body, PAGES), "chat": Load(chat_request(), CHATS)}


async def ask(port: int, load: Load) -> None:
    """All requests of a run, IN_FLIGHT at a time. Raises AssertionError for one not answered."""
    left = load.count

    async def call() -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while left > 0:
            left -= 1
            writer.write(load.request)
            status, head = await read_status(reader)
            answer = await read_rest(reader, head)
            assert status == 200, answer[:300]
        writer.transport.abort()

    await asyncio.gather(*(call() for _ in range(IN_FLIGHT)))


def cpu_ms(server: Server, load: Load) -> float:
    """CPU milliseconds of the server for a request."""
    before = tree_cpu_s(server.pid)
    uvloop.run(ask(int(server.url.rpartition(":")[2]), load))
    httpx.get(f"{server.management_url}/metrics").raise_for_status()
    time.sleep(SETTLE_S)
    return (tree_cpu_s(server.pid) - before) / load.count * 1e3


@contextmanager
def servers(core: int | None) -> Iterator[dict[str, Server]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        collected = stack.enter_context(collector())
        port = stack.enter_context(stand_in(folder))
        common: dict[str, Any] = {
            "engine": "vllm",
            "vllm_url": f"http://127.0.0.1:{port}",
            "isolation_check": "warn",
            "decode_workers": 1,
            "pages_per_decode_worker": 100_000,  # a start in one run and none in the other
        }
        with on_core(core):
            on = running_server(folder, **common, otlp_endpoint=collected.url)
            off = running_server(
                folder, command=_OFF, **common, usage_records="off", log_level="error"
            )
            yield {"on": stack.enter_context(on), "off": stack.enter_context(off)}
            assert collected.bodies, "no trace came"


def measure(pairs: int) -> dict[str, dict[str, list[float]]]:
    """CPU milliseconds a request, by load and server, a number for each pair."""
    load_core, server_core = cores()
    found: dict[str, dict[str, list[float]]] = {}
    with servers(server_core) as both, on_core(load_core):
        for name, load in loads().items():
            found[name] = {"on": [], "off": []}
            for server in both.values():
                cpu_ms(server, load)  # warm
            for number in range(pairs):
                order = ("on", "off") if number % 2 else ("off", "on")
                for which in order:
                    found[name][which].append(cpu_ms(both[which], load))
                on_ms, off_ms = found[name]["on"][-1], found[name]["off"][-1]
                shown = f"{name} {number + 1}/{pairs}: {on_ms:.2f} ms on, {off_ms:.2f} ms off"
                print(shown, file=sys.stderr, flush=True)
    return found


def summary(cpu: dict[str, list[float]]) -> dict[str, object]:
    ratios = [on / off for on, off in zip(cpu["on"], cpu["off"], strict=True)]
    return {
        "cpu_ratio": round(median(ratios), 4),
        "interval": [round(end, 4) for end in interval(ratios)],
        "on_ms": round(median(cpu["on"]), 3),
        "off_ms": round(median(cpu["off"]), 3),
        "pairs": len(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    options = parser.parse_args()
    found = {name: summary(cpu) for name, cpu in measure(options.pairs).items()}
    print(json.dumps({**found["page"], "chat": found["chat"]}))


if __name__ == "__main__":
    main()
