"""Do callers stay apart? 200 coded pages through every route, and an engine that leaks as control.

    make figure NAME=isolation

Starts real engines: the one under test with the plugin, and the release that leaks without it.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import httpx

from hunyuan_ocr.engines.isolation import new_pages
from tests.engine.coded import read_pages
from tests.engine.conftest import running
from tests.engine.sidecar import sidecar

PAGES = 200
IN_FLIGHT = 16
_VERDICT_TIMEOUT_S = 60.0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def measure(url: str) -> dict[str, float]:
    """Foreign codes, and own codes together over own codes one by one."""
    pages = new_pages(PAGES, random.Random(), [])
    say(f"{PAGES} pages one by one")
    alone = await read_pages(url, pages, in_flight=1)
    say(f"{PAGES} pages, {IN_FLIGHT} in flight")
    together = await read_pages(url, pages, in_flight=IN_FLIGHT)
    return {
        "pages": PAGES,
        "foreign": together.foreign,
        "own_ratio": round(together.own / alone.own, 4),
        "own_alone": round(alone.own / alone.codes, 4),
    }


def self_test_seconds(log: Path) -> float:
    """How long the self-test took that let the engine in."""
    for line in log.read_text("utf-8").splitlines():
        record = json.loads(line)
        if record["message"] == "isolation self-test":
            return float(record["seconds"])
    raise RuntimeError("no self-test ran")


def unpatched_is_detected(folder: Path) -> bool:
    """Whether the service refuses the release that leaks, and says so."""
    with (
        running("0.32.0", 8132, "--no-plugin") as engine,
        sidecar(folder, engine.url, probe="livez") as service,
    ):
        deadline = time.monotonic() + _VERDICT_TIMEOUT_S
        while time.monotonic() < deadline:
            ready = httpx.get(f"{service.management_url}/readyz")
            if ready.status_code != 200 and "leaking" in ready.json()["reason"]:
                return True
            time.sleep(0.2)
    return False


def measure_engine(folder: Path, version: str) -> dict[str, object]:
    """The figure for one release with the plugin, and how long its self-test took."""
    say(f"starting {version} with the plugin")
    with running(version, 8128) as engine, sidecar(folder, engine.url) as service:
        figure = asyncio.run(measure(service.url))
        return {**figure, "seconds": round(self_test_seconds(service.log), 2)}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say("starting the engine that leaks")
        detected = unpatched_is_detected(folder)
        patched = measure_engine(folder, "0.32.0")
        pinned = measure_engine(folder, "0.28.0")
    print(json.dumps({**pinned, "unpatched_detected": detected, "patched_0.32.0": patched}))


if __name__ == "__main__":
    main()
