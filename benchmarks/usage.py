"""Do usage records, metrics and what clients saw tell the same?

    make figure NAME=usage
    python -m benchmarks.usage [--requests N]

Mixed requests with keys, before a stand-in engine: pages, documents, streams, long pages in tiles,
blank pages, broken images, wrong keys, deadlines out of reach, answers that do not fit and are
asked for twice, chats, and clients that leave while they send or while they wait. `difference` is
the sum of all absolute differences: requests without a record and records without a request;
statuses; of each request whose client was told its usage, pages, megapixels and tokens; and of the
sums over all records, each of these and slot seconds against the metrics. 0 is expected.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import uvloop
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from hunyuan_ocr.api.keys import new_key
from tests.api.engine_standin import server_before, stand_in
from tests.api.server import Server
from tests.files import tiff_pages
from tests.pictures import picture, png_bytes, saved

REQUESTS = 1000
CLIENTS = 16
ENGINE_MS = 40
TENANTS = ("billing", "archive", "mail room")
LEFT = 499
_CHAT, _READ = "/v1/chat/completions", "/v1/ocr"
_SETTLED_WITHIN_S = 20.0
# Fields of a record, and the samples whose sum over all records they must be.
SUMS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "pages": ("hunyuan_ocr_pages_total", {"outcome": "ok"}),
    "pages_failed": ("hunyuan_ocr_pages_total", {"outcome": "!ok"}),
    "megapixels": ("hunyuan_ocr_megapixels_total", {}),
    "prompt_tokens": ("hunyuan_ocr_tokens_total", {"direction": "prompt"}),
    "output_tokens": ("hunyuan_ocr_tokens_total", {"direction": "output"}),
    "engine_slot_seconds": ("hunyuan_ocr_engine_slot_seconds_total", {"kind": "used"}),
    "requests": ("hunyuan_ocr_request_duration_seconds_count", {"method": "POST"}),
}
_TOLD = ("pages", "megapixels", "prompt_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `leaves`: the client goes before the answer, with all or half of its body sent;
    `tells`: where a good answer has its usage."""

    path: str = _READ
    body: bytes = b""
    media_type: str = "application/octet-stream"
    query: str = ""
    accept: str = "application/json"
    key_is_wrong: bool = False
    leaves: str = ""
    tells: str = ""


@cache
def kinds() -> Mapping[str, Ask]:
    """All kinds of requests, of which each is as likely."""
    page, blank = png_bytes(), saved(Image.new("RGB", (600, 800), "white"), "PNG")
    document = tiff_pages([picture()[0], Image.new("RGB", (480, 160), "white"), picture()[0]])
    long = saved(picture([f"Line {n}" for n in range(100)], size=(720, 5800))[0], "PNG")
    simple = json.dumps({"image": base64.b64encode(page).decode()}).encode()
    return {
        "page": Ask(body=page, tells="json"),
        "urgent": Ask(body=page, query="?priority=interactive", tells="json"),
        "simple": Ask("/ocr", simple, "application/json"),
        "document": Ask(body=document, query="?priority=batch", tells="json"),
        "lines": Ask(body=document, accept="application/x-ndjson", tells="ndjson"),
        "events": Ask(body=page, accept="text/event-stream", tells="sse"),
        "long": Ask(body=long, tells="json"),
        "blank": Ask(body=blank, tells="json"),
        "broken": Ask(body=page[:300]),
        "nothing": Ask(body=b"{}", media_type="application/json"),
        "wrong key": Ask(body=page, key_is_wrong=True),
        "too late": Ask(body=page, query="?timeout_s=0.02"),
        "misfit": Ask(body=page, query="?task=extract&fields=total"),
        "leaves": Ask(body=page, leaves="answer"),
        "leaves a document": Ask(body=document, accept="application/x-ndjson", leaves="answer"),
        "leaves early": Ask(body=page, leaves="body"),
        "chat": Ask(_CHAT, _chat(page), "application/json", tells="json"),
        "streamed chat": Ask(_CHAT, _chat(page, stream=True), "application/json", tells="chat"),
        "leaves a chat": Ask(_CHAT, _chat(page), "application/json", leaves="answer"),
    }


def _chat(page: bytes, stream: bool = False) -> bytes:
    url = f"data:image/png;base64,{base64.b64encode(page).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "Read."}]
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return json.dumps({"messages": [{"role": "user", "content": content}], **options}).encode()


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw; `status` LEFT where it did not wait for one."""

    kind: str
    status: int
    usage: Mapping[str, float] = field(default_factory=dict)


async def send(client: httpx.AsyncClient, name: str, ask: Ask, key: str) -> tuple[int, bytes]:
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": ask.media_type,
        "Accept": ask.accept,
        "X-Request-Id": name,
    }
    answer = await client.post(ask.path + ask.query, content=ask.body, headers=headers)
    return answer.status_code, answer.content


async def leave(port: int, name: str, ask: Ask, key: str, after_s: float) -> None:
    """Send a request or half of it, and close the connection."""
    head = (
        f"POST {ask.path}{ask.query} HTTP/1.1\r\nHost: benchmark\r\nX-Request-Id: {name}\r\n"
        f"Authorization: Bearer {key}\r\nAccept: {ask.accept}\r\n"
        f"Content-Type: {ask.media_type}\r\nContent-Length: {len(ask.body)}\r\n\r\n"
    )
    sent = ask.body if ask.leaves == "answer" else ask.body[: len(ask.body) // 2]
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + sent)
    await writer.drain()
    await asyncio.sleep(after_s)
    writer.transport.abort()


def told(ask: Ask, answer: bytes) -> Mapping[str, float]:
    """The usage in a good answer."""
    text = answer.decode()
    if ask.tells == "ndjson":
        usage = json.loads(text.strip().splitlines()[-1])["usage"]
    elif ask.tells in ("sse", "chat"):
        events = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
        usage = json.loads(events[-1])["usage"]
    else:
        usage = json.loads(text)["usage"]
    if ask.path == _CHAT:
        tokens = {"prompt_tokens": usage["prompt_tokens"]}
        return tokens | {"output_tokens": usage["completion_tokens"], "pages": 0, "megapixels": 0}
    return {name: usage[name] for name in _TOLD}


async def ask_all(server: Server, keys: Sequence[str], count: int) -> Mapping[str, Seen]:
    """What came of `count` requests, CLIENTS at a time, by their ids."""
    rng, seen = random.Random(1), dict[str, Seen]()
    order = [kind for kind in kinds() for _ in range(count // len(kinds()) + 1)]
    rng.shuffle(order)
    waiting = [(f"u{number}", kind) for number, kind in enumerate(order[:count])]
    port = int(server.url.rpartition(":")[2])

    async def call(client: httpx.AsyncClient) -> None:
        while waiting:
            name, kind = waiting.pop()
            ask, key = kinds()[kind], rng.choice(keys)
            if ask.key_is_wrong:
                key = key[:-1]
            if ask.leaves:
                await leave(port, name, ask, key, rng.uniform(0, 3 * ENGINE_MS / 1e3))
                seen[name] = Seen(kind, LEFT)
            else:
                status, answer = await send(client, name, ask, key)
                usage = told(ask, answer) if status == 200 and ask.tells else {}
                seen[name] = Seen(kind, status, usage)
            if len(seen) % 100 == 0:
                print(f"{len(seen)} requests", file=sys.stderr, flush=True)

    async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
        await asyncio.gather(*(call(client) for _ in range(CLIENTS)))
    return seen


def metrics(server: Server) -> Mapping[str, float]:
    """The metrics that records must sum up to, by the records' names."""
    text = httpx.get(f"{server.management_url}/metrics").text
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]

    def total(name: str, labels: Mapping[str, str]) -> float:
        return sum(
            s.value
            for s in samples
            if s.name == name
            and all(
                s.labels[key] != value[1:] if value[0] == "!" else s.labels[key] == value
                for key, value in labels.items()
            )
        )

    return {field: total(*sample) for field, sample in SUMS.items()}


def settled(server: Server, count: int) -> Sequence[Mapping[str, Any]]:
    """All records, when nothing is in flight any more."""
    with suppress(AssertionError):  # one that is missing counts as a difference
        server.usage_records(count, _SETTLED_WITHIN_S)
    time.sleep(1)  # for one too many
    return server.usage_records(0)


def differences(
    seen: Mapping[str, Seen],
    records: Sequence[Mapping[str, Any]],
    counted: Mapping[str, float],
) -> Counter[str]:
    """By what differs, how much."""
    found: Counter[str] = Counter()
    by_id = {record["request_id"]: record for record in records}
    found["records"] = len(records) - len(by_id) + len(by_id.keys() ^ seen.keys())
    for name in by_id.keys() & seen.keys():
        record, client = by_id[name], seen[name]
        answered = record["outcome"] == "answered"
        if client.status != LEFT:
            found["status"] += record["status"] != client.status
            found["outcome"] += answered != (client.status == 200)
        else:
            found["outcome"] += record["outcome"] not in ("answered", "cancelled")
        for told_name, value in client.usage.items():
            # A client is told megapixels with three places.
            places = 3 if told_name == "megapixels" else 6
            found[f"client: {told_name}"] += round(abs(round(record[told_name], places) - value), 6)
    for field_name, value in counted.items():
        total = len(records) if field_name == "requests" else sum(r[field_name] for r in records)
        found[f"metric: {field_name}"] = round(abs(total - value), 6)
    return found


def run(count: int, folder: Path) -> dict[str, object]:
    made = [new_key(tenant) for tenant in TENANTS]
    (folder / "keys").write_text("\n".join(entry for _, entry in made))
    settings: dict[str, Any] = {"api_keys_file": folder / "keys", "log_level": "warning"}
    settings |= {"vllm_concurrency": 8, "decode_workers": 2}
    with stand_in(folder, ENGINE_MS) as engine, server_before(engine, folder, **settings) as server:
        before = metrics(server)
        seen = uvloop.run(ask_all(server, [key for key, _ in made], count))
        records = settled(server, count)
        counted = {name: value - before[name] for name, value in metrics(server).items()}
        lost = server.metric("hunyuan_ocr_usage_records_lost_total")
    found = differences(seen, records, counted)
    outcomes = Counter(record["outcome"] for record in records)
    print(f"differences: {+found}; metrics: {dict(counted)}", file=sys.stderr)
    return {
        "requests": len(seen),
        "difference": round(sum(found.values()) + lost, 6),
        "answered": outcomes["answered"],
        "refused": outcomes["refused"],
        "failed": outcomes["failed"],
        "cancelled": outcomes["cancelled"],
        **{name: round(value, 6) for name, value in counted.items() if name != "requests"},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(options.requests, Path(folder))))


if __name__ == "__main__":
    main()
