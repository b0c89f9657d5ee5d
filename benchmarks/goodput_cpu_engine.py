"""Goodput under overload before real vLLM on the CPU, with cores of its own where there are two.

    make figure NAME=goodput-cpu-engine

vLLM has the last core, and generator, service and its decode processes share the others: with so
few it is a report and no bar. `naked` asks vLLM directly.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from benchmarks.engine_throughput import request
from benchmarks.load import closed_loop
from benchmarks.open_loop import Answer, ask, poisson
from tests.engine.conftest import running
from tests.engine.sidecar import sidecar

IN_FLIGHT = 16
DEADLINE_S = 8.0
MEASURE_S = 15.0
LOADS = (1.0, 2.0, 5.0, 10.0)


@contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """What is started inside runs on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


async def goodput(port: int, asked: bytes, per_s: float) -> float:
    """Answers in time a second, once the queues have had time to fill."""
    loop = asyncio.get_running_loop()
    begin = loop.time() + DEADLINE_S

    async def one() -> Answer:
        return await ask(port, asked, DEADLINE_S)

    answers = await poisson(
        one, per_s=per_s, seconds=DEADLINE_S + MEASURE_S, rng=random.Random(round(per_s * 100))
    )
    good = sum(a.status == 200 and begin <= a.ended < begin + MEASURE_S for a in answers)
    return good / MEASURE_S


def main() -> None:
    asked = request()
    cores = os.sched_getaffinity(0)
    last = {max(cores)}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        with pinned(last):
            engine = stack.enter_context(running("0.28.0", 8128))
        stack.enter_context(pinned(cores - last or cores))
        service = stack.enter_context(
            sidecar(
                Path(folder),
                engine.url,
                standard_timeout_s=DEADLINE_S,
                standard_max_queue_s=DEADLINE_S,
            )
        )
        engine_port, port = (urlsplit(url).port or 0 for url in (engine.url, service.url))
        window = uvloop.run(
            closed_loop(
                engine_port,
                asked,
                lambda: 0.0,
                in_flight=IN_FLIGHT,
                warm_up_s=3.0,
                measure_s=10.0,
            )
        )
        capacity = window.per_second
        print(f"capacity: {capacity:.2f} pages a second")
        figure: dict[str, object] = {"capacity_pages_per_s": round(capacity, 2)}
        for name, to in (("ours", port), ("naked", engine_port)):
            measured = {}
            for load in LOADS:
                measured[f"{load:g}x"] = uvloop.run(goodput(to, asked, load * capacity))
                print(f"{name:6} load {load:4g}: {measured[f'{load:g}x']:6.2f} in time")
            figure[name] = {k: round(v / capacity, 3) for k, v in measured.items()}
    print(json.dumps(figure))


if __name__ == "__main__":
    main()
