"""Usage records of a real server: what finance gets, and that it adds up."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from benchmarks.usage import Seen, differences, kinds, leave, run
from hunyuan_ocr.api.keys import new_key
from tests.api.engine_standin import StandIn, server_before, stand_in
from tests.api.server import Server
from tests.pictures import picture, png_bytes, saved

KEY, ENTRY = new_key("billing department")
PNG = {"Content-Type": "image/png"}
FIELDS = {
    "message", "time", "request_id", "tenant", "route", "status", "class", "outcome", "pages",
    "pages_failed", "megapixels", "prompt_tokens", "output_tokens", "engine_slot_seconds",
}  # fmt: skip


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with stand_in(tmp_path_factory.mktemp("engine"), 20) as running:
        yield running


@pytest.fixture(scope="module")
def server(engine: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "keys").write_text(ENTRY)
    given: dict[str, Any] = {"api_keys_file": folder / "keys", "decode_workers": 1}
    with server_before(engine, folder, **given) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client(Authorization=f"Bearer {KEY}") as opened:
        yield opened


def record_of(server: Server, request_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = [r for r in server.usage_records(0) if r["request_id"] == request_id]
        if found:
            (record,) = found
            return record
        time.sleep(0.05)
    raise AssertionError(f"no record of {request_id}")


def ask(
    server: Server,
    client: httpx.Client,
    request_id: str,
    content: bytes = b"",
    path: str = "/v1/ocr",
    **headers: str,
) -> tuple[httpx.Response, dict[str, Any]]:
    """An answer and the record of it."""
    sent = PNG | {"X-Request-Id": request_id} | headers
    answer = client.post(path, content=content or png_bytes(), headers=sent)
    return answer, record_of(server, request_id)


def test_a_page_that_was_read(server: Server, client: httpx.Client) -> None:
    answer, record = ask(server, client, "read", path="/v1/ocr?priority=interactive")
    usage = answer.json()["usage"]
    assert set(record) == FIELDS
    assert record["tenant"] == "billing department"
    assert (record["route"], record["status"], record["class"]) == ("/v1/ocr", 200, "interactive")
    assert record["outcome"] == "answered"
    assert (record["pages"], record["pages_failed"], record["megapixels"]) == (1, 0, 0.0768)
    assert (record["prompt_tokens"], record["output_tokens"]) == (812, 24)
    assert usage["prompt_tokens"] == 812
    assert record["engine_slot_seconds"] > 0
    # Neither the key nor a word of the page.
    written = server.usage.read_text("utf-8")
    assert KEY.partition(".")[2] not in written
    assert "Invoice" not in written


def test_a_blank_page_takes_nothing_of_the_engine(server: Server, client: httpx.Client) -> None:
    blank = saved(Image.new("RGB", (400, 500), "white"), "PNG")
    _, record = ask(server, client, "blank", blank)
    assert (record["outcome"], record["pages"], record["megapixels"]) == ("answered", 1, 0.2)
    assert (record["prompt_tokens"], record["engine_slot_seconds"]) == (0, 0)


def test_every_tile_of_a_long_page_counts(server: Server, client: httpx.Client) -> None:
    long = saved(picture([f"Line {n}" for n in range(100)], size=(720, 5800))[0], "PNG")
    answer, record = ask(server, client, "long", long)
    assert record["pages"] == 1
    assert record["output_tokens"] == answer.json()["usage"]["output_tokens"] >= 48


def test_answers_that_do_not_fit_were_read_all_the_same(
    server: Server, client: httpx.Client
) -> None:
    """Asked for twice, and then refused to the caller: the engine worked for it."""
    answer, record = ask(server, client, "misfit", path="/v1/ocr?task=extract&fields=total")
    assert (answer.status_code, answer.json()["code"]) == (422, "answer_invalid")
    assert (record["outcome"], record["pages"], record["pages_failed"]) == ("failed", 0, 1)
    assert (record["prompt_tokens"], record["output_tokens"]) == (2 * 812, 2 * 24)
    assert record["engine_slot_seconds"] > 0


def test_what_is_turned_away(server: Server, client: httpx.Client) -> None:
    cases = {
        "broken": ask(server, client, "broken", png_bytes()[:200]),
        "unknown": ask(server, client, "unknown", Authorization="Bearer billing department.x"),
        "never": ask(server, client, "never", path="/v1/ocr?priority=never"),
        "late": ask(server, client, "late", path="/v1/ocr?timeout_s=0.001&priority=batch"),
    }
    told = {
        name: (answer.status_code, record["tenant"], record["class"])
        for name, (answer, record) in cases.items()
    }
    assert told == {
        "broken": (422, "billing department", "standard"),
        "unknown": (401, "anonymous", "none"),
        "never": (422, "billing department", "none"),
        "late": (429, "billing department", "batch"),
    }
    for answer, record in cases.values():
        assert (record["outcome"], record["status"]) == ("refused", answer.status_code)
        assert (record["route"], record["engine_slot_seconds"]) == ("/v1/ocr", 0)
    text = httpx.get(f"{server.management_url}/metrics").text
    assert 'count{class="none",method="POST",route="/v1/ocr",status="401"} 1.0' in text


def test_a_page_that_fails_is_one_error_and_one_page(server: Server, client: httpx.Client) -> None:
    def counted() -> tuple[float, float]:
        pages = server.metric("hunyuan_ocr_pages_total")
        return server.metric("hunyuan_ocr_errors_total"), pages

    errors, pages = counted()
    answer = client.post("/v1/ocr", content=png_bytes()[:200], headers=PNG)
    assert answer.json()["code"] == "image_corrupt"
    assert counted() == (errors + 1, pages + 1)


def test_a_client_that_leaves_pays_for_what_the_engine_did(
    server: Server, engine: StandIn, client: httpx.Client
) -> None:
    port = int(server.url.rpartition(":")[2])
    engine.take(3000)
    try:
        for name, kind in (("left", "leaves"), ("left-chat", "leaves a chat")):
            asyncio.run(leave(port, name, kinds()[kind], KEY, 0.7))
    finally:
        engine.take(20)
    for name in ("left", "left-chat"):
        record = record_of(server, name)
        assert (record["outcome"], record["status"]) == ("cancelled", 499)
        assert record["pages"] == 0
        assert record["engine_slot_seconds"] > 0.1


def test_only_pages_and_chats_are_recorded(server: Server, client: httpx.Client) -> None:
    for path in ("/v1/options", "/v1/ocr", "/elsewhere"):
        client.get(path, headers={"X-Request-Id": "other"})
    client.post("/elsewhere", headers={"X-Request-Id": "other"})
    ask(server, client, "after")
    assert not [r for r in server.usage_records(0) if r["request_id"] == "other"]


def test_mixed_requests_add_up(tmp_path: Path) -> None:
    figure = run(5 * len(kinds()), tmp_path)
    assert figure["difference"] == 0
    for outcome in ("answered", "refused", "failed", "cancelled"):
        assert figure[outcome] != 0


def test_the_comparison_sees_what_does_not_add_up() -> None:
    used = {"pages": 1, "megapixels": 0.5, "prompt_tokens": 10, "output_tokens": 2}
    record = {"request_id": "a", "status": 200, "outcome": "answered", **used}
    seen, counted = {"a": Seen("page", 200, used)}, {**used, "requests": 1}
    assert not +differences(seen, [record], counted)
    wrong: dict[str, Counter[str]] = {
        "twice": differences(seen, [record, record], counted),
        "missing": differences(seen, [], counted),
        "tokens": differences(seen, [record | {"output_tokens": 3}], counted),
        "status": differences(seen, [record | {"status": 500}], counted),
        "metric": differences(seen, [record], counted | {"megapixels": 0.5001}),
    }
    assert all(+found for found in wrong.values())
