"""Distinct pages read at once over HTTP: how many answers held another caller's page?

make figure NAME=mixed-up
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path

import httpx

from tests.api.server import Server, running_server
from tests.pictures import jpeg_bytes

PAGES = 256
IN_FLIGHT = 64


async def measure(server: Server) -> dict[str, int]:
    """Every page holds a number of its own; an answer must hold that one and no other."""
    rng = random.Random()
    codes = [f"{number:09d}" for number in rng.sample(range(10**9), PAGES)]
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def ask(client: httpx.AsyncClient, code: str) -> str:
        async with gate:
            response = await client.post(
                "/ocr",
                params={"timeout_s": 600},
                content=jpeg_bytes([f"Code {code}"]),
                headers={"Content-Type": "image/jpeg"},
            )
        text: str = response.raise_for_status().json()["text"]
        print(".", end="", file=sys.stderr, flush=True)
        return text

    limits = httpx.Limits(max_connections=IN_FLIGHT)
    async with httpx.AsyncClient(base_url=server.url, timeout=600, limits=limits) as client:
        texts = await asyncio.gather(*(ask(client, code) for code in codes))
    print(file=sys.stderr)
    own = sum(code in text for code, text in zip(codes, texts, strict=True))
    mixed_up = sum(
        any(other in text for other in codes if other != code)
        for code, text in zip(codes, texts, strict=True)
    )
    return {"pages": PAGES, "mixed_up": mixed_up, "own": own, "in_flight": IN_FLIGHT}


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder), standard_max_queue_s=600, standard_timeout_s=600) as server,
    ):
        print(json.dumps(asyncio.run(measure(server))))


if __name__ == "__main__":
    main()
