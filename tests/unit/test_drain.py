"""A drain's phases on a clock of our own, its markers, and that it concerns one service alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from hunyuan_ocr.api.drain import ConnectionEnds, DrainGate
from hunyuan_ocr.app import build
from hunyuan_ocr.errors import Draining
from hunyuan_ocr.settings import Settings
from hunyuan_ocr.traffic.drain import Drain, Drainer, Phase


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def phase(drain: Drain) -> Phase:
    return drain.phase


def test_phases(clock: Clock) -> None:
    drain = Drain(clock)
    assert (phase(drain), drain.begun) == (Phase.SERVING, False)
    with drain.request():
        drain.begin(10)
        assert (phase(drain), drain.begun) == (Phase.PROPAGATING, True)
        clock.now_s += 9.9
        with drain.request():
            clock.now_s += 0.1
            assert phase(drain) is Phase.REFUSING
            assert drain.requests == 2
            with pytest.raises(Draining) as refused, drain.request():
                pass
            assert refused.value.retry_after_s
        assert phase(drain) is Phase.REFUSING
    assert phase(drain) is Phase.DRAINED
    with pytest.raises(Draining):
        drain.check()


def test_an_idle_service_still_waits_for_its_callers_to_hear(clock: Clock) -> None:
    drain = Drain(clock)
    drain.begin(10)
    assert phase(drain) is Phase.PROPAGATING
    drain.check()
    clock.now_s += 10
    assert phase(drain) is Phase.DRAINED


@pytest.mark.parametrize(("second", "refuses_after_s"), [(10, 10), (0, 4)])
def test_a_second_drain_joins_and_never_prolongs(
    clock: Clock, second: float, refuses_after_s: float
) -> None:
    drain = Drain(clock)
    drain.begin(10)
    clock.now_s += 4
    drain.begin(second)
    began = clock.now_s - 4
    while drain.phase is Phase.PROPAGATING:
        clock.now_s += 0.5
    assert clock.now_s - began == refuses_after_s


def test_a_request_that_fails_is_in_flight_no_more(clock: Clock) -> None:
    drain = Drain(clock)
    with pytest.raises(KeyError), drain.request():
        raise KeyError
    assert drain.requests == 0


async def test_markers_appear_in_order(tmp_path: Path, clock: Clock) -> None:
    drain = Drain(clock)
    drainer = Drainer(drain, tmp_path)
    (tmp_path / "drained").touch()
    drainer.clear_markers()
    assert list(tmp_path.iterdir()) == []
    with drain.request():
        drainer.begin(0)
        assert not await drainer.wait(0.2)
        assert [path.name for path in tmp_path.iterdir()] == ["draining"]
    drainer.begin(0)
    assert await drainer.wait()
    assert {path.name for path in tmp_path.iterdir()} == {"draining", "drained"}


async def test_a_marker_that_cannot_be_written_costs_no_request(
    tmp_path: Path, clock: Clock
) -> None:
    drain = Drain(clock)
    drainer = Drainer(drain, tmp_path / "absent")
    with drain.request():
        drainer.begin(0)
        assert not await drainer.wait(0.2)
    assert await drainer.wait()


async def test_a_drain_concerns_its_own_service_alone(tmp_path: Path) -> None:
    leaving, staying = (build(Settings(markers_directory=tmp_path)) for _ in range(2))
    async with leaving.running():
        leaving.drainer.begin(0)
        assert await leaving.drainer.wait()

        async def answer(service: object, path: str, method: str) -> httpx.Response:
            transport = httpx.ASGITransport(service)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                return await client.request(method, path)

        refused = await answer(leaving.api, "/ocr", "POST")
        assert (refused.status_code, refused.json()["code"]) == (503, "draining")
        assert refused.headers["connection"] == "close"
        served = await answer(staying.api, "/ocr", "POST")
        assert (served.status_code, served.json()["code"]) == (503, "engine_starting")
        assert "connection" not in served.headers
        reason = (await answer(leaving.management, "/readyz", "GET")).json()["reason"]
        assert "draining" in reason
        reason = (await answer(staying.management, "/readyz", "GET")).json()["reason"]
        assert "draining" not in reason


class Client:
    """One that sends `chunks` of a body; `sent` is what the server has taken of them."""

    def __init__(self, chunks: int) -> None:
        self.chunks = chunks
        self.sent = 0
        self.answer: list[Message] = []
        self.taken_at_end: int | None = None

    async def receive(self) -> Message:
        if self.sent == self.chunks:
            await asyncio.Event().wait()
        self.sent += 1
        return {"type": "http.request", "body": b"x", "more_body": self.sent < self.chunks}

    async def send(self, message: Message) -> None:
        self.answer.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.taken_at_end = self.sent


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 401, "headers": []})
    await send({"type": "http.response.body", "body": b"no"})


@pytest.mark.parametrize(
    ("draining", "headers", "ends"),
    [
        (True, [], True),
        (False, [(b"expect", b"100-continue")], True),
        (False, [], False),
    ],
)
async def test_an_answer_that_ends_the_connection_first_takes_the_rest_of_the_body(
    clock: Clock, draining: bool, headers: list[tuple[bytes, bytes]], ends: bool
) -> None:
    drain = Drain(clock)
    if draining:
        drain.begin(10)
    client = Client(chunks=50)
    app = ConnectionEnds(DrainGate(refuse, drain), drain)
    scope = {"type": "http", "method": "POST", "headers": headers}
    await app(scope, client.receive, client.send)
    assert b"".join(message.get("body", b"") for message in client.answer) == b"no"
    assert client.taken_at_end == (50 if ends else 0)
    assert ((b"connection", b"close") in client.answer[0]["headers"]) is ends
