"""What one caller does to the others at the edges of admission: before it, after it, beside it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from hunyuan_ocr.app import Service, build
from hunyuan_ocr.settings import Settings
from tests import files
from tests.api.engine_standin import StandIn, stand_in
from tests.pictures import LINES, jpeg_bytes

PAGE_MS = 200
JPEG: dict[str, Any] = {"content": jpeg_bytes(), "headers": {"Content-Type": "image/jpeg"}}
PDF = {"Content-Type": "application/pdf"}
Message = dict[str, Any]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with stand_in(tmp_path_factory.mktemp("engine"), PAGE_MS) as running:
        yield running


@pytest.fixture
def engine(started: StandIn) -> Iterator[StandIn]:
    yield started
    started.take(PAGE_MS)


@asynccontextmanager
async def service_before(engine: StandIn, **settings: Any) -> AsyncIterator[Service]:
    """In this process, so that a test can be a client that takes what is sent as it likes."""
    given: dict[str, Any] = {
        "engine": "vllm",
        "vllm_url": engine.url,
        "isolation_check": "warn",
        "decode_workers": 1,
    }
    service = build(Settings(**(given | settings)))
    async with service.running():
        async with asyncio.timeout(60):
            ways = [way for way in (service.usual, service.stand_in) if way]
            while any(way.engine.refusal() for way in ways):
                await asyncio.sleep(0.05)
        yield service


async def chat(
    service: Service, take: Callable[[Message], Awaitable[None]], **members: Any
) -> None:
    """Ask for a chat whose answer is given to `take`, message by message."""
    asked = {"messages": [{"role": "user", "content": "hello"}]} | members
    body = json.dumps(asked).encode()
    left = asyncio.Event()
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Message:
        for message in messages:
            return message
        await left.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/chat/completions",
        "raw_path": b"/v1/chat/completions",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json"), (b"host", b"x")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    await service.api(scope, receive, take)  # type: ignore[arg-type]


def judged(service: Service) -> float:
    """How many turns at the engine were measured."""
    value = service.metrics.registry.get_sample_value("hunyuan_ocr_service_ratio_count")
    return value or 0


async def test_an_answer_that_nobody_takes_keeps_nobody_from_the_engine(engine: StandIn) -> None:
    taken = asyncio.Event()
    waiting = 0

    async def take(_: Message) -> None:
        nonlocal waiting
        waiting += 1
        await taken.wait()

    async with service_before(engine, vllm_concurrency=2, vllm_concurrency_floor=2) as service:
        slow = [asyncio.create_task(chat(service, take)) for _ in range(6)]
        async with asyncio.timeout(10):
            while waiting < 6:  # three times as many as the engine reads at once
                await asyncio.sleep(0.02)
        assert service.usual.admission.admission.held_slots == 0
        assert service.usual.admission.admission.begun == 0
        taken.set()
        await asyncio.gather(*slow)
        assert judged(service) == 6


@pytest.mark.parametrize(("delay_s", "count"), [(0.0, 12), (0.5, 0)])
async def test_a_stream_that_its_caller_holds_back_says_nothing_of_the_engine(
    engine: StandIn, delay_s: float, count: int
) -> None:
    sent: list[bytes] = []

    async def take(message: Message) -> None:
        await asyncio.sleep(delay_s)
        sent.append(message.get("body", b""))

    async with service_before(engine) as service:
        limit = service.usual.admission.admission.limit_slots
        await asyncio.gather(*(chat(service, take, stream=True) for _ in range(12)))
        assert b"".join(sent).count(b"data: [DONE]") == 12
        assert judged(service) == count
        assert service.usual.admission.admission.limit_slots == limit
        assert service.usual.guard.state.reason is None


async def test_a_chat_is_priced_by_the_answer_it_asks_for(engine: StandIn) -> None:
    async def take(_: Message) -> None:
        pass

    async def cost(**members: Any) -> float:
        admission = service.usual.admission.admission
        asked = asyncio.create_task(chat(service, take, **members))
        while not (held := admission.held_slots):
            await asyncio.sleep(0.005)
        await asked
        return held

    async with service_before(engine, vllm_slot_tokens=64) as service:
        assert await cost(max_tokens=1) == await cost(max_completion_tokens=1) == 1
        assert await cost() > 1
        assert await cost(max_tokens=100_000) > 1


def steps_of(engine: StandIn) -> str:
    """How often it worked on something."""
    found = re.search(
        r"iteration_tokens_total_count\S* (\d+)", httpx.get(f"{engine.url}/metrics").text
    )
    assert found
    return found[1]


async def test_text_that_no_context_holds_is_refused_before_it_waits(engine: StandIn) -> None:
    messages = [{"role": "user", "content": "word " * 80_000}]
    async with service_before(engine) as service, client_of(service) as client:
        steps = steps_of(engine)
        answer = await client.post("/v1/chat/completions", json={"messages": messages})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")
        assert "context" in answer.json()["detail"]
        assert steps_of(engine) == steps


async def test_the_header_of_a_very_long_document_is_not_read(engine: StandIn) -> None:
    async with service_before(engine) as service, client_of(service) as client:
        for pages, status in ((2_000, 200), (2_001, 413)):
            pdf = files.pdf_of_empty_pages(pages)
            answer = await client.post("/v1/ocr?pages=1", content=pdf, headers=PDF)
            assert answer.status_code == status, answer.text
        assert answer.json()["code"] == "too_many_pages"


@asynccontextmanager
async def client_of(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(service.api)
    async with httpx.AsyncClient(transport=transport, base_url="http://x", timeout=60) as client:
        yield client


async def flood(service: Service, count: int, **query: str) -> list[httpx.Response]:
    async with client_of(service) as client:
        asked = (client.post("/v1/ocr", params=query, **JPEG) for _ in range(count))
        return await asyncio.gather(*asked)


async def test_an_engine_that_is_too_slow_for_its_deadlines_is_noticed(engine: StandIn) -> None:
    async with service_before(engine, vllm_concurrency=4, vllm_concurrency_floor=1) as service:
        assert {answer.status_code for answer in await flood(service, 4)} == {200}
        engine.take(20_000)
        late = await flood(service, 12, timeout_s="3")
        assert {answer.json()["code"] for answer in late} == {"deadline_exceeded"}
        # So that some of as many are told at once.
        refused = await flood(service, 12, timeout_s="3")
        assert "deadline_unreachable" in {answer.json()["code"] for answer in refused}


async def test_the_cpu_engine_reads_what_the_queue_refuses_for_those_who_allow_it(
    engine: StandIn,
) -> None:
    """vLLM reads one page at a time, and two seconds of work may wait for it."""
    async with service_before(
        engine,
        vllm_concurrency=1,
        vllm_concurrency_floor=1,
        standard_max_queue_s=2,
        embedded_workers=1,
        degrade_top="cpu_engine",
    ) as service:
        pages: dict[str, list[dict[str, Any]]] = {}
        for answer in await flood(service, 30):
            assert answer.status_code in (200, 429), answer.text
            if answer.status_code == 200:
                (page,) = answer.json()["pages"]
                pages.setdefault(page["engine"], []).append(page)
        assert set(pages) == {"vllm", "embedded"}
        for page in pages["embedded"]:
            assert (page["degraded"], page["warnings"]) == (True, ["cpu_engine"])
            assert page["text"] == "\n".join(LINES)
        assert not any(page["degraded"] for page in pages["vllm"])

        for query in ({"allow_degraded": "false"}, {"task": "table"}):
            answers = await flood(service, 30, **query)
            refused = [answer for answer in answers if answer.status_code != 200]
            assert {(a.status_code, a.json()["code"]) for a in refused} == {(429, "queue_full")}
            assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
            read = [answer.json()["pages"][0] for answer in answers if answer.status_code == 200]
            assert {(page["engine"], page["degraded"]) for page in read} == {("vllm", False)}
