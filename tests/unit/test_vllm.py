"""The vLLM engine against a stand-in server that misbehaves in ways a real one does rarely."""

from __future__ import annotations

import asyncio
import gc
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.trace import Tracer

from hunyuan_ocr.documents.document import PreparedImage
from hunyuan_ocr.engines.base import EngineEvent, EngineRequest
from hunyuan_ocr.engines.visual_tokens import PixelBounds
from hunyuan_ocr.engines.vllm import VllmEngine, VllmOptions
from hunyuan_ocr.errors import (
    EngineRejected,
    EngineUnavailable,
    ImageTooLarge,
    InvalidField,
    OcrError,
)
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.telemetry.engine_spans import NO_TRACES

METRICS = """
process_start_time_seconds {start}
vllm:num_requests_running 1
vllm:num_requests_waiting 0
vllm:iteration_tokens_total_count {steps}
"""
ANSWER = (
    b'data: {"choices":[{"delta":{"content":"hello"},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
    b"data: [DONE]\n\n"
)


@dataclass
class StandIn:
    """What the server says; tests change it while it runs."""

    start: int = 1
    steps: int = 0
    models: object = field(default_factory=lambda: {"data": [{"id": "m", "max_model_len": 8192}]})
    status: int = 200
    answer: bytes = ANSWER
    hang: bool = False
    traceparents: list[str | None] = field(default_factory=list)
    metrics: Callable[[StandIn], str] = lambda s: METRICS.format(start=s.start, steps=s.steps)

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/health", self.healthy)
        app.router.add_get("/metrics", self.scraped)
        app.router.add_get("/v1/models", self.listed)
        app.router.add_post("/v1/chat/completions", self.chat)
        return app

    async def healthy(self, _: web.Request) -> web.Response:
        return web.Response()

    async def scraped(self, _: web.Request) -> web.Response:
        return web.Response(text=self.metrics(self))

    async def listed(self, _: web.Request) -> web.Response:
        return web.json_response(self.models)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        json.loads(await request.read())
        self.traceparents.append(request.headers.get("traceparent"))
        if self.hang:
            await asyncio.sleep(60)
        self.steps += 1
        if self.status != 200:
            return web.Response(status=self.status)
        return web.Response(body=self.answer, content_type="text/event-stream")


@asynccontextmanager
async def running(
    stand_in: StandIn, *, tracer: Tracer = NO_TRACES, **options: Any
) -> AsyncIterator[VllmEngine]:
    runner = web.AppRunner(stand_in.application(), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    given: dict[str, Any] = {
        "base_url": f"http://127.0.0.1:{port}",
        "generation": "1.5",
        "concurrency": 2,
        "pixels": PixelBounds(1024, 1 << 20),
        "page_pixels": 1 << 18,
        "high_pixels": 1 << 18,
        "encoder_tokens": 2048,
        "max_output_tokens": 100,
        "hung_after_s": 1.0,
        # The stand-in reads no page, so the self-test says "unreadable".
        "isolation_check": "warn",
    }
    engine = VllmEngine(VllmOptions(**(given | options)), random.Random(1), tracer=tracer)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()
        await runner.cleanup()


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def request(**changes: Any) -> EngineRequest:
    fields: dict[str, Any] = {
        "image": PreparedImage(b"x", "image/png", 64, 64),
        "task": Task.TEXT,
        "prompt": "p",
        "max_output_tokens": 10,
        "request_id": "r",
    }
    return EngineRequest(**(fields | changes))


async def read(engine: VllmEngine, asked: EngineRequest | None = None) -> list[EngineEvent]:
    return [event async for event in engine.stream(asked or request())]


def ready(engine: VllmEngine) -> bool:
    return engine.refusal() is None


def reason(engine: VllmEngine) -> str:
    refusal = engine.refusal()
    return refusal.detail if refusal else ""


async def test_an_engine_is_met_and_read() -> None:
    async with running(StandIn()) as engine:
        await until(lambda: ready(engine))
        assert len(await read(engine)) == 2
        assert engine.capabilities.model == "m"


async def test_one_that_cannot_be_trusted_is_not_let_in() -> None:
    async with running(StandIn(), isolation_check="enforce") as engine:
        await until(lambda: "unreadable" in reason(engine))
        with pytest.raises(EngineUnavailable) as refused:
            await read(engine)
        assert "127.0.0.1" not in refused.value.detail


@pytest.mark.parametrize(
    "wrong",
    [
        {"models": {"data": []}},
        {"models": []},
        {"models": {"data": [{"id": "m"}]}},
        {"metrics": lambda _: "nothing known"},
        {"metrics": lambda _: "process_start_time_seconds x"},
    ],
)
async def test_what_is_not_vllm_is_said_and_the_watch_goes_on(wrong: dict[str, Any]) -> None:
    stand_in = StandIn(**wrong)
    async with running(stand_in) as engine:
        await until(lambda: "is not vLLM" in reason(engine))
        right = StandIn()
        stand_in.models, stand_in.metrics = right.models, StandIn.metrics
        await until(lambda: ready(engine))


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": 503},
        {"status": 500},
        {"answer": b""},
        {"answer": ANSWER[:40]},
        {"answer": b"data: {nonsense\n\n"},
        {"answer": b'data: {"choices": 5}\n\n'},
        {"answer": b'data: {"error": {"message": "out of memory", "code": 500}}\n\n'},
    ],
)
async def test_failures_are_refusals_with_a_time_to_come_back(wrong: dict[str, Any]) -> None:
    stand_in = StandIn()
    async with running(stand_in) as engine:
        await until(lambda: ready(engine))
        for name, value in wrong.items():
            setattr(stand_in, name, value)
        with pytest.raises(EngineUnavailable) as failed:
            await read(engine)
        assert failed.value.retry_after_s
        stand_in.status, stand_in.answer = 200, ANSWER
        assert len(await read(engine)) == 2


async def test_a_hang_frees_those_who_wait_and_holds_none_of_their_bytes() -> None:
    stand_in = StandIn()
    async with running(stand_in) as engine:
        await until(lambda: ready(engine))
        stand_in.hang = True

        async def caller(number: int) -> None:
            image = PreparedImage(b"page %d" % number, "image/png", 64, 64)
            with pytest.raises(EngineUnavailable):
                await read(engine, request(image=image))

        async with asyncio.timeout(10):
            await asyncio.gather(*map(caller, range(8)))
        gc.collect()
        held = [o for o in gc.get_objects() if isinstance(o, PreparedImage)]
        assert [image for image in held if image.data.startswith(b"page")] == []
        assert "hangs" in reason(engine)
        # Nobody else's work is sent to it: the watch's own shows that it goes on.
        stand_in.hang = False
        await until(lambda: ready(engine), 40)


async def test_another_process_is_tested_anew() -> None:
    stand_in = StandIn()
    async with running(stand_in) as engine:
        await until(lambda: ready(engine))
        first = engine.isolation
        stand_in.start = 2
        await until(lambda: engine.isolation is not None and engine.isolation is not first)
        await until(lambda: ready(engine))


async def test_what_does_not_fit_the_context_is_refused_by_its_cause() -> None:
    async with running(StandIn()) as engine:
        await until(lambda: ready(engine))
        with pytest.raises(InvalidField):
            await read(engine, request(prompt="x" * 9000))
        with pytest.raises(ImageTooLarge):
            await read(engine, request(image=PreparedImage(b"x", "image/png", 32, 60_000)))


async def test_a_schema_that_the_engine_cannot_follow_is_the_callers() -> None:
    stand_in = StandIn()
    async with running(stand_in) as engine:
        await until(lambda: ready(engine))
        stand_in.answer = b'data: {"error": {"message": "Grammar error", "code": 400}}\n\n'
        with pytest.raises(InvalidField):
            await read(engine, request(json_schema={"type": "object"}))
        with pytest.raises(EngineRejected):
            await read(engine)


async def test_closing_ends_everything() -> None:
    stand_in = StandIn()
    async with running(stand_in) as engine:
        await until(lambda: ready(engine))
        stand_in.hang = True
        waiting = asyncio.create_task(read(engine))
        await asyncio.sleep(0.1)
        await engine.close()
        with suppress(OcrError):
            await waiting
        assert isinstance(waiting.exception(), EngineUnavailable)
