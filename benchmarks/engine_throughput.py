"""Pages a second of the real CPU engine, asked directly and through the service, in turn.

    make figure NAME=engine-throughput

Generator, service and engine share the machine's cores, so this says whether the service costs
the engine anything that can be seen, not what it costs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import uvloop

from benchmarks.load import closed_loop, post
from benchmarks.overhead import interval
from tests.engine.conftest import running
from tests.engine.papers import chat, invoices
from tests.engine.sidecar import sidecar

PAIRS = 12
IN_FLIGHT = 8
WARM_UP_S = 2.0
MEASURE_S = 8.0


def request() -> bytes:
    (paper,) = invoices(1, seed=50)
    body = chat(
        paper.png, model="hunyuan-ocr", max_tokens=256, temperature=0, repetition_penalty=1.0
    )
    return post("/v1/chat/completions", json.dumps(body).encode())


def pages_per_s(url: str, asked: bytes) -> float:
    port = urlsplit(url).port or 0
    window = uvloop.run(
        closed_loop(
            port,
            asked,
            lambda: 0.0,
            in_flight=IN_FLIGHT,
            warm_up_s=WARM_UP_S,
            measure_s=MEASURE_S,
        )
    )
    return window.per_second


def main() -> None:
    asked = request()
    ratios, direct, through = [], [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        running("0.28.0", 8128) as engine,
        sidecar(Path(folder), engine.url) as service,
    ):
        for pair in range(PAIRS):
            order = (engine.url, service.url) if pair % 2 else (service.url, engine.url)
            rate = {url: pages_per_s(url, asked) for url in order}
            direct.append(rate[engine.url])
            through.append(rate[service.url])
            ratios.append(rate[service.url] / rate[engine.url])
            print(f"pair {pair + 1} of {PAIRS}: {ratios[-1]:.3f}", file=sys.stderr)
    low, high = interval(ratios)
    figure = {
        "ratio": round(median(ratios), 3),
        "interval": [round(low, 3), round(high, 3)],
        "direct_pages_per_s": round(median(direct), 2),
        "through_pages_per_s": round(median(through), 2),
    }
    print(json.dumps(figure))


if __name__ == "__main__":
    main()
