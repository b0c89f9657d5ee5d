"""The circuit breaker as callers and operators meet it, before an engine whose speed is known."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hunyuan_ocr import control
from tests.api.engine_standin import StandIn, server_before, stand_in
from tests.api.server import Server
from tests.pictures import LINES, jpeg_bytes

PAGE_MS = 300
JPEG: dict[str, Any] = {"content": jpeg_bytes(), "headers": {"Content-Type": "image/jpeg"}}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[StandIn]:
    with stand_in(tmp_path, PAGE_MS) as running:
        yield running


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "control"


def said(socket: Path, *arguments: str) -> str:
    command: list[str | Path] = [Path(sys.executable).parent / "hunyuan-ocr", "breaker", *arguments]
    command += ["--socket", socket]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def breaker(socket: Path, action: str = "status", why: str = "") -> dict[str, Any]:
    return control.breaker(socket, action, why)


async def flood(server: Server, seconds: float, at_once: int = 4) -> list[httpx.Response]:
    """Keep so many requests in flight; what was refused is asked again at once."""
    answers: list[httpx.Response] = []
    end = time.monotonic() + seconds

    async def ask(client: httpx.AsyncClient) -> None:
        while time.monotonic() < end:
            answers.append(await client.post("/v1/ocr", **JPEG))
            await asyncio.sleep(0.02)

    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        await asyncio.gather(*(ask(client) for _ in range(at_once)))
    return answers


def ready(server: Server) -> bool:
    return httpx.get(f"{server.management_url}/readyz").status_code == 200


def codes(answers: list[httpx.Response]) -> set[str]:
    return {answer.json()["code"] for answer in answers if answer.status_code != 200}


async def test_an_engine_that_becomes_slow_is_spared_and_used_again_when_it_is_well(
    engine: StandIn, tmp_path: Path, socket: Path
) -> None:
    with server_before(
        engine, tmp_path, control_socket=socket, vllm_concurrency=4, degrade_top="none"
    ) as server:
        assert codes(await flood(server, 3)) == set()
        assert breaker(socket)["state"] == "closed"
        engine.take(4 * PAGE_MS)
        began = time.monotonic()
        while breaker(socket)["state"] == "closed":
            assert time.monotonic() - began < 30
            await flood(server, 1)
        assert breaker(socket)["reason"] == "latency"
        refused = [a for a in await flood(server, 0.5) if a.status_code != 200]
        assert {a.status_code for a in refused} == {503}
        assert codes(refused) == {"breaker_open"}
        assert all(int(a.headers["retry-after"]) >= 1 for a in refused)
        assert ready(server)
        engine.take(PAGE_MS)
        deadline = time.monotonic() + 30
        while breaker(socket)["state"] != "closed":
            assert time.monotonic() < deadline
            await flood(server, 1)
        assert codes(await flood(server, 2)) == set()
        log = [line for line in server.log_lines() if line.get("message") == "breaker"]
        assert [(line["from"], line["to"]) for line in log] == [
            ("closed", "open"),
            ("open", "half_open"),
            ("half_open", "closed"),
        ]
        assert server.metric('hunyuan_ocr_breaker_state{hunyuan_ocr_breaker_state="closed"}') == 1


async def test_by_hand_it_refuses_until_it_is_closed(
    engine: StandIn, tmp_path: Path, socket: Path
) -> None:
    with server_before(engine, tmp_path, control_socket=socket) as server:
        state = json.loads(said(socket, "open", "--why", "new fan", "--json"))
        assert (state["state"], state["reason"], state["why"]) == ("open", "manual", "new fan")
        assert codes(await flood(server, 0.3, at_once=1)) == {"breaker_open"}
        assert said(socket) == "open (manual); new fan\n"
        assert breaker(socket, "close")["state"] == "closed"
        assert codes(await flood(server, 0.5, at_once=1)) == set()


def telemetry(path: Path, **figures: object) -> None:
    """What the probe writes of one card."""
    device = {"index": 0, "uuid": "GPU-1", "name": "card", "reasons": 0} | figures
    report = {
        "state": "ok",
        "detail": "",
        "sampled_boottime_s": time.clock_gettime(time.CLOCK_BOOTTIME),
        "devices": [device],
    }
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(report))
    fresh.replace(path)


async def test_a_card_that_is_too_hot_opens_it_and_its_figures_are_shown(
    engine: StandIn, tmp_path: Path, socket: Path
) -> None:
    path = tmp_path / "gpu.json"
    telemetry(path, temperature_c=55, slowdown_in_c=29)
    with server_before(engine, tmp_path, control_socket=socket, gpu_file=path) as server:
        deadline = time.monotonic() + 20
        while breaker(socket)["state"] == "closed":
            assert time.monotonic() < deadline
            telemetry(path, temperature_c=88, slowdown_in_c=-4, reasons=0x40)
            await asyncio.sleep(0.5)
        assert breaker(socket)["reason"] == "thermal"
        assert codes(await flood(server, 0.2, at_once=1)) == {"breaker_open"}
        assert server.metric("hunyuan_ocr_gpu_temperature_celsius") == 88
        assert server.metric("hunyuan_ocr_gpu_limit_factor_ratio") < 1
        assert server.metric("hunyuan_ocr_gpu_telemetry_stale") == 0
        await asyncio.sleep(7)  # the probe is silent now
        state = breaker(socket)
        assert state["gpu_stale"]
        assert state["state"] == "open"  # silence is not coolness


async def test_the_cpu_engine_reads_text_where_the_engine_is_spared(
    engine: StandIn, tmp_path: Path, socket: Path
) -> None:
    with (
        server_before(
            engine, tmp_path, control_socket=socket, breaker_policy="cpu", embedded_workers=1
        ) as server,
        server.client() as client,
    ):
        # Ready as soon as the CPU engine is; pages go to vLLM from when that is up.
        while client.post("/v1/ocr", **JPEG).json()["pages"][0]["engine"] != "vllm":
            await asyncio.sleep(0.1)
        usual = client.post("/v1/ocr", **JPEG).json()["pages"][0]
        assert (usual["engine"], usual["degraded"]) == ("vllm", False)
        judged = server.metric("hunyuan_ocr_service_ratio_count")
        breaker(socket, "open")
        page = client.post("/v1/ocr", **JPEG).json()["pages"][0]
        assert page["text"] == "\n".join(LINES)
        assert (page["engine"], page["degraded"]) == ("embedded", True)
        assert page["warnings"] == ["cpu_engine"]
        # Its time says nothing of the engine that usually reads.
        assert server.metric("hunyuan_ocr_service_ratio_count") == judged
        for params in ({"allow_degraded": "false"}, {"task": "table"}):
            answer = client.post("/v1/ocr", params=params, **JPEG)
            assert (answer.status_code, answer.json()["code"]) == (503, "breaker_open")
        breaker(socket, "close")
        assert client.post("/v1/ocr", **JPEG).json()["pages"][0]["engine"] == "vllm"


async def test_the_cpu_engine_serves_before_vllm_is_up(tmp_path: Path) -> None:
    gone = StandIn("http://127.0.0.1:9")
    with (
        server_before(gone, tmp_path, breaker_policy="cpu", embedded_workers=1) as server,
        server.client() as client,
    ):
        assert ready(server)
        page = client.post("/v1/ocr", **JPEG).json()["pages"][0]
        assert (page["engine"], page["degraded"]) == ("embedded", True)
