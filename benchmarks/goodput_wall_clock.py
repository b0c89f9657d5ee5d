"""Answers within their deadline under overload, as fractions of each policy's own peak.

    make figure NAME=goodput-wall-clock

The same comparison as `goodput`, in real time: real processes before an engine that is a stand-in
with the law of a batch (`benchmarks/standin.py`). It takes seven minutes.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.load import post
from benchmarks.open_loop import Answer, ask, poisson
from benchmarks.peers.running import Place, semaphore_gateway, started
from benchmarks.standin import MODEL
from tests.api.server import free_ports, running_server

IN_FLIGHT = 16
PAGE_S, CONTENTION = 0.2, 0.2
# What the stand-in serves with as many in flight as it is made for: 20 a second.
CAPACITY_PER_S = IN_FLIGHT / (PAGE_S * (1 + CONTENTION * (IN_FLIGHT - 1)))
ENGINE_LIMIT = 64
DEADLINE_S = 4.0
MEASURE_S = 10.0
PEAK_LOADS = (0.75, 1.0, 1.25)
OVERLOADS = (2.0, 5.0, 10.0)
POLICIES = ("ours", "semaphore", "naked", "engine_limits")
_REQUEST = post(
    "/v1/chat/completions",
    json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Read." * 200}]}).encode(),
)


@contextmanager
def engine(folder: Path, *options: str) -> Iterator[int]:
    """A stand-in whose requests share a batch; yields its port."""
    (port,) = free_ports(1)
    law = ["--latency-ms", str(PAGE_S * 1e3), "--contention", str(CONTENTION), *options]
    command = [sys.executable, "-m", "benchmarks.standin", "--port", str(port), *law]
    with started(command, {}, port, folder / f"engine-{port}.log"):
        yield port


@contextmanager
def behind(policy: str, folder: Path) -> Iterator[int]:
    """The port that callers of a policy use."""
    options = ("--max-queued", str(ENGINE_LIMIT)) if policy == "engine_limits" else ()
    with engine(folder, *options) as engine_port, ExitStack() as stack:
        place = Place(folder, None, engine_port)
        if policy == "ours":
            settings: dict[str, Any] = {
                "engine": "vllm",
                "vllm_url": place.engine_url,
                "isolation_check": "warn",
                "vllm_concurrency": IN_FLIGHT,
                "standard_timeout_s": DEADLINE_S,
            }
            server = stack.enter_context(running_server(folder, **settings))
            yield int(server.url.rpartition(":")[2])
        elif policy == "semaphore":
            yield stack.enter_context(semaphore_gateway(place)).port
        else:
            yield engine_port


async def goodput(port: int, load: float) -> float:
    """Answers in time a second, once the queues have had time to fill."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def one() -> Answer:
        return await ask(port, _REQUEST, DEADLINE_S)

    answers = await poisson(
        one,
        per_s=load * CAPACITY_PER_S,
        seconds=DEADLINE_S + MEASURE_S,
        rng=random.Random(round(load * 100)),
    )
    begin = began + DEADLINE_S
    good = sum(a.status == 200 and begin <= a.ended < begin + MEASURE_S for a in answers)
    return good / MEASURE_S


def fractions(policy: str) -> dict[str, float]:
    """Goodput at each overload / the best at any load."""
    measured = {}
    with tempfile.TemporaryDirectory() as folder, behind(policy, Path(folder)) as port:
        for load in (*PEAK_LOADS, *OVERLOADS):
            measured[load] = uvloop.run(goodput(port, load))
            print(f"{policy:14} load {load:5g}: {measured[load]:6.2f} answers in time a second")
    peak = max(measured.values())
    return {f"{load:g}x": round(measured[load] / peak, 3) for load in OVERLOADS}


def main() -> None:
    print(json.dumps({policy: fractions(policy) for policy in POLICIES}))


if __name__ == "__main__":
    main()
