"""Whatever callers invent, the number of series that Prometheus must keep stays what it is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from urllib.parse import quote

from starlette.types import Message, Scope

from hunyuan_ocr.api.keys import new_key
from hunyuan_ocr.app import Service, build
from hunyuan_ocr.settings import Settings

# `make figure NAME=series` sends a hundred thousand.
REQUESTS = 20_000
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW")
PATHS = ("/ocr", "/v1/ocr", "/v1/chat/completions", "/v1/models", "/v1/options", "/openapi.json")
LARGE = "9" * 12
NOISE = "".join(map(chr, random.Random(2).choices(range(0x20, 0x17F), k=1_000_000)))
CLASSES = ("", "priority=interactive", "priority=standard", "priority=batch", "priority=never")


def scope(method: str, path: str, query: str, headers: dict[str, str], host: str) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": quote(path, errors="replace").encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(k.encode(), v.encode("latin-1", "replace")) for k, v in headers.items()],
        "client": (host, 1),
        "server": ("127.0.0.1", 2),
    }


def plain(key: str) -> Iterator[Scope]:
    """Every method, path and class that there is, with whatever leads to another answer."""
    given = {
        "x-api-key": (key, "wrong"),
        "content-type": ("image/png", "application/json", "text/x"),
        "accept": ("*/*", "image/x"),
        "content-length": ("0", LARGE),
    }
    for method, path, query in product(METHODS, (*PATHS, "/elsewhere"), CLASSES):
        for values in product(*given.values()):
            headers = dict(zip(given, values, strict=True))
            yield scope(method, path, query, headers, "127.0.0.1")


def hostile(rng: random.Random, key: str) -> Scope:
    """A request of somebody who wants to fill memory with series."""

    def noise() -> str:
        start = int(rng.random() * len(NOISE))
        return NOISE[start : start + 1 + start % 30]

    method = rng.choice(METHODS) if rng.random() < 0.5 else noise()
    path = rng.choice(PATHS) if rng.random() < 0.5 else f"/{rng.choice(('', 'v1/ocr/'))}{noise()}"
    query = rng.choice(CLASSES) if rng.random() < 0.5 else f"priority={quote(noise())}&{noise()}=1"
    headers = {
        "x-request-id": noise(),
        "x-api-key": key if rng.random() < 0.3 else noise(),
        "traceparent": f"00-{rng.getrandbits(128):032x}-{rng.getrandbits(64):016x}-01",
        "tracestate": noise(),
        "content-type": rng.choice(("image/png", "application/json", noise())),
        "accept": noise(),
        "user-agent": noise(),
        "content-length": rng.choice(("0", LARGE, noise())),
        noise().lower(): noise(),
    }
    return scope(method, path, query, headers, f"10.{rng.randrange(256)}.{rng.randrange(256)}.1")


async def send_to(service: Service, asked: Scope) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        """Nobody takes it."""

    await service.api(asked, receive, send)


def series(service: Service) -> int:
    families = service.metrics.registry.collect()
    return sum(len(family.samples) for family in families)


async def attacked(folder: Path, requests: int) -> tuple[int, int]:
    """Series of a service before and after so many hostile requests."""
    key, entry = new_key("caller")
    (folder / "keys").write_text(entry)
    service = build(Settings(api_keys_file=folder / "keys", usage_records="off"))
    for asked in plain(key):
        await send_to(service, asked)
    before = series(service)
    rng = random.Random(1)
    for _ in range(requests):
        await send_to(service, hostile(rng, key))
    return before, series(service)


async def test_hostile_requests_add_no_series(tmp_path: Path) -> None:
    before, after = await attacked(tmp_path, REQUESTS)
    assert before > 1000
    assert after == before
