"""Who gets the engine, and what the others are told; before an engine of known speed."""

from __future__ import annotations

import asyncio
import io
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.overload import large_jpeg
from hunyuan_ocr.api.keys import new_key
from tests.api.engine_standin import StandIn, server_before, stand_in
from tests.api.server import Server
from tests.pictures import jpeg_bytes, picture, saved

pytestmark = pytest.mark.alone

PAGE_MS = 200
SLOTS = 4
JPEG: dict[str, Any] = {"content": jpeg_bytes(), "headers": {"Content-Type": "image/jpeg"}}
GREEDY, GREEDY_ENTRY = new_key("greedy")
MODEST, MODEST_ENTRY = new_key("modest")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with stand_in(tmp_path_factory.mktemp("engine"), PAGE_MS) as running:
        yield running


@pytest.fixture(scope="module")
def sidecar(engine: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Reads 20 pages a second; a second of work may wait in each class, of batch two."""
    folder = tmp_path_factory.mktemp("server")
    keys = folder / "keys"
    keys.write_text(f"{GREEDY_ENTRY}\n{MODEST_ENTRY}\n")
    with server_before(
        engine,
        folder,
        api_keys_file=keys,
        vllm_concurrency=SLOTS,
        vllm_concurrency_floor=SLOTS,
        standard_max_queue_s=1,
        batch_max_queue_s=2,
        degrade_top="none",
    ) as running:
        asyncio.run(warm_up(running))
        yield running


async def warm_up(sidecar: Server) -> None:
    """Its answers are shorter than is expected of an engine that was not seen to answer yet."""
    async with caller(sidecar) as client:
        for _ in range(40):
            await flood(client, SLOTS)


@asynccontextmanager
async def caller(sidecar: Server, key: str = MODEST) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=sidecar.url,
        headers={"Authorization": f"Bearer {key}"},
        timeout=60,
        limits=httpx.Limits(max_connections=None),
    ) as client:
        yield client


async def read(client: httpx.AsyncClient, **query: str) -> httpx.Response:
    return await client.post("/v1/ocr", params=query, **JPEG)


async def flood(client: httpx.AsyncClient, count: int, **query: str) -> list[httpx.Response]:
    return await asyncio.gather(*(read(client, **query) for _ in range(count)))


@asynccontextmanager
async def flooded(
    client: httpx.AsyncClient, at_once: int, **query: str
) -> AsyncIterator[Counter[int]]:
    """`at_once` callers ask again as soon as they have an answer; yields answers by status."""
    seen: Counter[int] = Counter()

    async def ask() -> None:
        while True:
            seen[(await read(client, **query)).status_code] += 1
            await asyncio.sleep(0.02)

    tasks = [asyncio.create_task(ask()) for _ in range(at_once)]
    try:
        async with asyncio.timeout(20):
            while not seen[429]:
                await asyncio.sleep(0.02)
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_full_queue_says_how_long_it_is_and_when_to_come_back(sidecar: Server) -> None:
    async with caller(sidecar) as client:
        answers = await flood(client, 80)
    assert {answer.status_code for answer in answers} == {200, 429}
    assert sum(answer.status_code == 200 for answer in answers) >= 15
    for refused in (answer for answer in answers if answer.status_code == 429):
        problem = refused.json()
        assert problem["code"] == "queue_full"
        assert 10 <= problem["queue_position"] <= 40
        assert 0.3 <= problem["predicted_wait_s"] <= 5
        assert 1 <= int(refused.headers["retry-after"]) == problem["retry_after_s"] <= 60


async def test_interactive_pages_stay_quick_while_others_are_refused(sidecar: Server) -> None:
    waits = []
    async with (
        caller(sidecar, GREEDY) as batch,
        caller(sidecar) as person,
        flooded(batch, 70, priority="batch"),
    ):
        for _ in range(10):
            began = time.monotonic()
            answer = await read(person, priority="interactive")
            waits.append(time.monotonic() - began)
            assert answer.status_code == 200, answer.text
    assert sorted(waits)[5] < 3 * PAGE_MS / 1e3


async def test_a_class_named_in_the_body_is_judged_by_its_own_queue(sidecar: Server) -> None:
    async with caller(sidecar, GREEDY) as many, caller(sidecar) as person, flooded(many, 60):
        form: dict[str, Any] = {
            "files": {"file": JPEG["content"]},
            "data": {"priority": "interactive"},
        }
        assert (await person.post("/v1/ocr", **form)).status_code == 200


async def test_a_greedy_caller_leaves_others_their_share(sidecar: Server) -> None:
    async with caller(sidecar, GREEDY) as greedy, caller(sidecar) as modest:
        async with flooded(greedy, 60) as seen:
            before = seen[200]
            answers = [answer for _ in range(5) for answer in await flood(modest, 3)]
        assert [answer.status_code for answer in answers] == [200] * 15
        # Three at once of four slots are less than half: nobody else waits, so they never do long.
        assert seen[200] > before


async def test_what_cannot_be_done_in_time_is_refused_at_once(sidecar: Server) -> None:
    async with caller(sidecar) as client:
        began = time.monotonic()
        answer = await read(client, timeout_s="0.1")
        assert time.monotonic() - began < PAGE_MS / 1e3
    assert answer.status_code == 429
    assert answer.json()["code"] == "deadline_unreachable"
    assert int(answer.headers["retry-after"]) >= 1


def tiff(pages: int) -> dict[str, Any]:
    """A document of small pages."""
    first, *others = (picture([f"{n}"], (64, 64))[0] for n in range(pages))
    out = io.BytesIO()
    first.save(out, "TIFF", save_all=True, append_images=others)
    return {"content": out.getvalue(), "headers": {"Content-Type": "image/tiff"}}


async def test_long_documents_are_batch_unless_asked_otherwise(sidecar: Server) -> None:
    async with caller(sidecar) as client:
        cases: list[tuple[dict[str, str], str]] = [
            ({}, "batch"),
            ({"pages": "1-20"}, "standard"),
            ({"priority": "interactive"}, "interactive"),
        ]
        for query, expected in cases:
            answer = await client.post("/v1/ocr", params=query, **tiff(21))
            assert answer.status_code == 200, answer.text
            assert sidecar.log_of(answer.headers["x-request-id"])["class"] == expected


async def test_a_priority_that_is_none(sidecar: Server) -> None:
    async with caller(sidecar) as client:
        answer = await read(client, priority="urgent")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")
    assert answer.json()["errors"][0]["field"] == "priority"


def first_line(sidecar: Server, path: str) -> bytes:
    """What comes back before any of a body that a client announced was sent."""
    host, port = sidecar.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(
            f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {GREEDY}\r\n"
            "Content-Type: image/jpeg\r\nContent-Length: 5000000\r\n"
            "Expect: 100-continue\r\n\r\n".encode()
        )
        return client.recv(4096).partition(b"\r\n")[0]


@pytest.mark.parametrize("path", ["/v1/ocr", "/ocr", "/v1/chat/completions"])
async def test_a_full_queue_refuses_before_the_body_is_sent(sidecar: Server, path: str) -> None:
    assert await asyncio.to_thread(first_line, sidecar, path) == b"HTTP/1.1 100 Continue"
    async with caller(sidecar, GREEDY) as many, flooded(many, 60):
        async with asyncio.timeout(20):
            while True:  # between two pages of the flood there may be room
                line = await asyncio.to_thread(first_line, sidecar, path)
                if line == b"HTTP/1.1 429 Too Many Requests":
                    break
                assert line == b"HTTP/1.1 100 Continue"
        batch = await asyncio.to_thread(first_line, sidecar, f"{path}?priority=batch")
        assert batch == b"HTTP/1.1 100 Continue"


async def test_callers_who_leave_give_everything_back(sidecar: Server, engine: StandIn) -> None:
    engine.take(20_000)
    try:
        async with caller(sidecar) as client:
            tasks = [asyncio.create_task(read(client)) for _ in range(10)]
            async with asyncio.timeout(10):
                while sidecar.metric("hunyuan_ocr_pages_in_flight") < SLOTS:
                    await asyncio.sleep(0.02)
            assert sidecar.metric("hunyuan_ocr_pages_waiting") == 10 - SLOTS
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        left = time.monotonic()
        held = ("pages_waiting", "pages_in_flight", "slots_held", "body_bytes")
        while any(sidecar.metric(f"hunyuan_ocr_{name}") for name in held):
            assert time.monotonic() - left < 1
            await asyncio.sleep(0.02)
        while engine.running():
            assert time.monotonic() - left < 1
            await asyncio.sleep(0.02)
    finally:
        engine.take(PAGE_MS)


async def recovered(sidecar: Server) -> None:
    """What it learnt from slow pages it must unlearn from quick ones."""
    async with caller(sidecar) as client, asyncio.timeout(60):
        while any(answer.status_code != 200 for answer in await flood(client, SLOTS)):
            await asyncio.sleep(0.2)


async def test_work_that_came_too_late_never_reaches_the_engine(
    sidecar: Server, engine: StandIn
) -> None:
    async with caller(sidecar) as client:
        engine.take(2000)
        try:
            answers = await flood(client, 12, timeout_s="2.5")
        finally:
            engine.take(PAGE_MS)
    codes = Counter(
        answer.json()["code"] if answer.status_code != 200 else "ok" for answer in answers
    )
    assert codes["ok"] >= SLOTS
    assert codes["deadline_exceeded"] >= 12 - 2 * SLOTS
    assert set(codes) == {"ok", "deadline_exceeded"}
    await recovered(sidecar)


async def test_pages_that_time_ran_out_for_come_back_as_items(
    sidecar: Server, engine: StandIn
) -> None:
    async with caller(sidecar) as client:
        reading = asyncio.create_task(
            client.post("/v1/ocr", params={"timeout_s": "4", "priority": "batch"}, **tiff(21))
        )
        async with asyncio.timeout(10):
            while not engine.running():
                await asyncio.sleep(0.02)
        engine.take(20_000)
        try:
            answer = (await reading).json()
        finally:
            engine.take(PAGE_MS)
        left = time.monotonic()
        while engine.running():
            assert time.monotonic() - left < 1
            await asyncio.sleep(0.02)
    assert answer["truncated"]
    assert [page["index"] for page in answer["pages"]] == list(range(21))
    codes = Counter(page["problem"] and page["problem"]["code"] for page in answer["pages"])
    assert codes.keys() == {None, "deadline_exceeded"}
    await recovered(sidecar)


async def test_bodies_take_no_more_memory_than_is_set(tmp_path: Path) -> None:
    limit_mb, body = 100, large_jpeg()
    with (
        stand_in(tmp_path, PAGE_MS) as engine,
        server_before(engine, tmp_path, max_bodies_megabytes=limit_mb) as sidecar,
    ):
        before = sidecar.peak_rss_megabytes()
        async with AsyncExitStack() as stack:
            callers = [
                await stack.enter_async_context(
                    httpx.AsyncClient(
                        base_url=sidecar.url,
                        transport=httpx.AsyncHTTPTransport(local_address=f"127.0.0.{number}"),
                    )
                )
                for number in range(1, 11)
            ]
            content: dict[str, Any] = JPEG | {"content": body}

            def post_all(times: int) -> list[asyncio.Task[httpx.Response]]:
                return [
                    asyncio.create_task(caller.post("/v1/ocr", **content, timeout=60))
                    for _ in range(times)
                    for caller in callers
                ]

            # Memory that was used before and given back is used differently.
            for times in (1, 2):
                await asyncio.gather(*post_all(times))
            engine.take(20_000)
            posts = post_all(4)
            async with asyncio.timeout(20):
                while sidecar.metric("hunyuan_ocr_body_bytes") < 0.85e6 * limit_mb:
                    await asyncio.sleep(0.02)
            await asyncio.sleep(1)
            held_mb = sidecar.metric("hunyuan_ocr_body_bytes") / 1e6
            for post in posts:
                post.cancel()
            await asyncio.gather(*posts, return_exceptions=True)
        peak = sidecar.peak_rss_megabytes()
    assert held_mb <= limit_mb
    # Two pages are being prepared, whose bodies are on their way to other processes.
    assert peak < before + limit_mb + 30


async def test_an_engine_that_has_too_much_gets_less(tmp_path: Path) -> None:
    with (
        stand_in(tmp_path, PAGE_MS, "--max-queued", "16") as engine,
        server_before(engine, tmp_path, vllm_concurrency=16, vllm_concurrency_floor=2) as sidecar,
    ):
        assert sidecar.metric("hunyuan_ocr_slots_limit") == 16
        engine.take(3000)
        async with httpx.AsyncClient(timeout=30) as other, caller(sidecar) as client:
            # Somebody else uses the engine too.
            url = f"{engine.url}/v1/chat/completions"
            others = [asyncio.create_task(other.post(url, content=b"{}")) for _ in range(12)]
            async with asyncio.timeout(5):
                while engine.running() < 12:
                    await asyncio.sleep(0.02)
            answers = await flood(client, 8)
            await asyncio.gather(*others)
        codes = Counter(answer.status_code for answer in answers)
        # It had room for four; the others were refused by it, or sent when it had room again.
        assert set(codes) == {200, 503}
        assert codes[200] >= 4
        assert sidecar.metric("hunyuan_ocr_slots_limit") <= 8


async def test_lasting_load_lowers_the_resolution_and_says_so(tmp_path: Path) -> None:
    large = saved(picture(size=(1200, 1000))[0], "JPEG")
    body: dict[str, Any] = {"content": large, "headers": {"Content-Type": "image/jpeg"}}
    with (
        stand_in(tmp_path, PAGE_MS) as engine,
        server_before(engine, tmp_path, vllm_concurrency=2, standard_max_queue_s=1) as sidecar,
    ):
        # Two callers: the backlog of one alone is no pressure on the others.
        elsewhere = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
        async with (
            caller(sidecar) as client,
            httpx.AsyncClient(base_url=sidecar.url, timeout=60, transport=elsewhere) as other,
            flooded(client, 30),
            flooded(other, 30),
            asyncio.timeout(60),
        ):
            while True:
                answer = await client.post("/v1/ocr", params={"priority": "interactive"}, **body)
                if answer.status_code == 200 and answer.json()["pages"][0]["degraded"]:
                    break
        (page,) = answer.json()["pages"]
        assert "resolution_lowered" in page["warnings"]
        assert page["scale"] == pytest.approx((0.5 * 1024**2 / 1.2e6) ** 0.5, rel=0.02)
        assert sidecar.metric("hunyuan_ocr_degradation_step") == 2
        assert sidecar.metric("hunyuan_ocr_degraded_pages_total") >= 1


async def test_autoscalers_see_what_is_refused(sidecar: Server) -> None:
    def load() -> float:
        return sidecar.metric("hunyuan_ocr_offered_load_engine_seconds_per_second")

    async with asyncio.timeout(60):
        while load() > 0.5:
            await asyncio.sleep(0.5)
        async with caller(sidecar) as client, flooded(client, 60):
            while load() < 1.8:
                await asyncio.sleep(0.5)
    assert sidecar.metric("hunyuan_ocr_offered_engine_seconds_total") > 0


@pytest.fixture(scope="module")
def metered(engine: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Three requests at once for each caller, then next to none."""
    folder = tmp_path_factory.mktemp("metered")
    keys = folder / "keys"
    keys.write_text(f"{GREEDY_ENTRY}\n{MODEST_ENTRY}\n")
    with server_before(
        engine,
        folder,
        api_keys_file=keys,
        quota_requests_per_s=0.01,
        quota_requests_burst=3,
        quota_cost_per_s=5,
        quota_cost_burst=50,
    ) as running:
        yield running


async def test_quotas_are_shown_and_kept_for_each_caller(metered: Server) -> None:
    async with caller(metered, GREEDY) as greedy, caller(metered) as modest:
        quotas = (await greedy.get("/v1/options")).json()["quotas"]
        assert quotas["requests"] == {"per_s": 0.01, "burst": 3, "left": 3}
        assert set(quotas) == {"requests", "cost"}

        answers = await flood(greedy, 5)
        assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 429, 429]
        for answer in answers:
            policy = answer.headers["ratelimit-policy"]
            assert policy == '"requests";q=3;w=300, "cost";q=50;w=10;qu="slot-seconds"'
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.json()["code"] == "quota_exceeded"
        assert 99 <= int(refused.headers["retry-after"]) <= 111
        requests, cost = refused.headers["ratelimit"].split(", ")
        name, left, after = requests.split(";")
        assert (name, left) == ('"requests"', "r=0")
        assert 295 <= int(after.removeprefix("t=")) <= 300
        assert cost.startswith('"cost";r=4')

        assert (await greedy.get("/v1/options")).json()["quotas"]["requests"]["left"] < 1
        # Others, and what asks for no page, go on.
        assert (await read(modest)).status_code == 200


async def test_what_the_queue_refuses_uses_up_no_quota(metered: Server) -> None:
    async with caller(metered) as client:
        before = (await client.get("/v1/options")).json()["quotas"]["requests"]["left"]
        for _ in range(3):
            assert (await read(client, timeout_s="0.1")).json()["code"] == "deadline_unreachable"
        after = (await client.get("/v1/options")).json()["quotas"]["requests"]["left"]
    assert after == pytest.approx(before, abs=0.2)


def test_without_keys_and_quotas_there_is_nothing_to_show(client: httpx.Client) -> None:
    answer = client.get("/v1/options")
    assert answer.json()["quotas"] == {}
    assert "ratelimit" not in answer.headers
    assert answer.json()["classes"]["interactive"]["default_timeout_s"] == 30
