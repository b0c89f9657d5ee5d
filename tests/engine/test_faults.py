"""What callers see when they leave, run out of time, or the engine dies or hangs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path

import httpx
import pytest
from PIL import Image

from hunyuan_ocr.engines import vllm_launcher
from tests.api.server import Server, free_ports
from tests.engine.conftest import Engine, lane, running
from tests.engine.papers import chat, invoices
from tests.engine.sidecar import sidecar
from tests.files import tiff_pages

PORT = 8133
PAPERS = list(invoices(16, seed=30))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running("0.28.0", PORT) as started:
        yield started


@pytest.fixture
def service(engine: Engine, tmp_path: Path) -> Iterator[Server]:
    with sidecar(tmp_path, engine.url) as server:
        yield server


def long_document() -> bytes:
    """Pages that keep the engine busy for seconds."""
    pages = [Image.open(BytesIO(paper.png)) for paper in PAPERS] * 8
    return tiff_pages(pages, compression="tiff_adobe_deflate")


def requests_in(engine: Engine) -> float:
    text = httpx.get(f"{engine.url}/metrics").text
    counts = re.findall(
        r"^vllm:num_requests_(?:running|waiting)\{[^}]*\} (\S+)$", text, re.MULTILINE
    )
    return sum(map(float, counts))


def within(seconds: float, engine: Engine, wanted: bool) -> None:
    """Whether the engine has work becomes `wanted`, or the test fails."""
    deadline = time.monotonic() + seconds
    while (requests_in(engine) > 0) is not wanted:
        assert time.monotonic() < deadline, f"{requests_in(engine)} requests in the engine"
        time.sleep(0.05)


@contextmanager
def nginx(upstream: str, folder: Path) -> Iterator[str]:
    """A proxy as people put one in front of a service."""
    (port,) = free_ports(1)
    config = folder / "nginx.conf"
    # Its workers drop root's rights otherwise, and with them the test's folder.
    user = "user root;" if os.geteuid() == 0 else ""
    config.write_text(
        f"""
        {user} daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;
        events {{}}
        http {{
          access_log off; client_max_body_size 100m;
          client_body_temp_path {folder}; proxy_temp_path {folder};
          fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
          server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {upstream}; }} }}
        }}
        """
    )
    process = subprocess.Popen(["/usr/sbin/nginx", "-c", config, "-e", folder / "error.log"])
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            with suppress(httpx.TransportError):
                httpx.get(f"{url}/v1/options")
                break
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()


def post_and_leave(url: str, engine: Engine) -> None:
    """Close the connection as soon as the engine is at work."""

    def post() -> None:
        with suppress(httpx.TransportError):
            client.post(
                f"{url}/v1/ocr", content=long_document(), headers={"Content-Type": "image/tiff"}
            )

    client = httpx.Client(timeout=60)
    posting = threading.Thread(target=post)
    posting.start()
    within(10, engine, True)
    left = time.monotonic()
    client.close()
    for pooled in client._transport._pool.connections:  # type: ignore[attr-defined]
        pooled.close()
    posting.join()
    within(1 - (time.monotonic() - left), engine, False)


def test_leaving_empties_the_engine(service: Server, engine: Engine) -> None:
    post_and_leave(service.url, engine)


def test_leaving_through_a_proxy_empties_the_engine(
    service: Server, engine: Engine, tmp_path: Path
) -> None:
    with nginx(service.url, tmp_path) as url:
        post_and_leave(url, engine)


def test_what_cannot_be_done_in_time_never_reaches_the_engine(
    service: Server, engine: Engine
) -> None:
    with service.client() as client:
        response = client.post(
            "/v1/ocr",
            params={"timeout_s": 4},
            content=long_document(),
            headers={"Content-Type": "image/tiff"},
        )
    assert requests_in(engine) == 0
    assert response.status_code == 429
    assert response.json()["code"] == "deadline_unreachable"


def engine_core() -> int:
    """The process that runs the model."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            title = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if title.startswith(b"VLLM::EngineCore") and f":{PORT}" in _siblings(int(entry.name)):
                return int(entry.name)
    raise AssertionError("no EngineCore")


def _siblings(pid: int) -> str:
    """The parent's command line, as `:port` of the API server it belongs to."""
    status = Path(f"/proc/{pid}/status").read_text()
    parent = re.search(r"PPid:\s+(\d+)", status)
    assert parent
    words = Path(f"/proc/{parent[1]}/cmdline").read_bytes().split(b"\0")
    return ":" + words[words.index(b"--port") + 1].decode() if b"--port" in words else ""


def callers(service: Server, count: int) -> tuple[list[httpx.Response], list[float]]:
    """Pages posted together while the engine is being harmed: answers, and when each came."""

    def ask(number: int) -> tuple[httpx.Response, float]:
        paper = PAPERS[number % len(PAPERS)]
        if number % 2:
            response = httpx.post(
                f"{service.url}/v1/chat/completions", json=chat(paper.png), timeout=60
            )
        else:
            png = {"Content-Type": "image/png"}
            response = httpx.post(f"{service.url}/ocr", content=paper.png, headers=png, timeout=60)
        return response, time.monotonic()

    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(ask, range(count)))
    return [response for response, _ in answers], [when for _, when in answers]


def recovered(service: Server, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        response = httpx.post(
            f"{service.url}/ocr",
            content=PAPERS[0].png,
            headers={"Content-Type": "image/png"},
            timeout=60,
        )
        if response.status_code == 200:
            assert response.json()["text"] == PAPERS[0].text
            return
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) >= 1
        assert time.monotonic() < deadline, response.text
        time.sleep(0.5)


def harmed(service: Server, engine: Engine, how: signal.Signals, limit_s: float) -> None:
    """Harm the engine's core while pages are in it: each gets an answer or a 503, in time.

    Those that were in the engine hear of it; one that waited may hear of the breaker, which ten
    answers that break off together open before anybody has asked whether the engine lives.
    """
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(callers, service, 12)
        within(10, engine, True)
        os.kill(engine_core(), how)
        done = time.monotonic()
        responses, ended = waiting.result()
    assert {response.status_code for response in responses} <= {200, 503}
    refused = [response for response in responses if response.status_code == 503]
    assert refused
    assert max(ended) - done <= limit_s
    codes = {response.json()["code"] for response in refused}
    assert "engine_unavailable" in codes
    assert codes <= {"engine_unavailable", "engine_starting", "breaker_open"}
    for response in refused:
        assert int(response.headers["retry-after"]) >= 1
    asked = time.monotonic()
    _, ended = callers(service, 2)
    assert max(ended) - asked <= 2


def test_a_stream_that_breaks_says_so_in_the_stream(service: Server, engine: Engine) -> None:
    """An answer that has begun has status 200: what ends it is told as vLLM itself would."""
    core = engine_core()
    body = chat(PAPERS[0].png, stream=True)
    lines: list[str] = []
    with httpx.stream(
        "POST", f"{service.url}/v1/chat/completions", json=body, timeout=60
    ) as response:
        assert response.status_code == 200
        try:
            for line in response.iter_lines():
                if not lines:
                    os.kill(core, signal.SIGSTOP)
                lines.append(line)
        finally:
            os.kill(core, signal.SIGCONT)
    (error,) = [line for line in lines if '"error"' in line]
    assert '"engine_unavailable"' in error
    recovered(service, 15)


def test_a_hung_engine_is_noticed_and_comes_back(service: Server, engine: Engine) -> None:
    core = engine_core()
    try:
        harmed(service, engine, signal.SIGSTOP, limit_s=12)
        ready = httpx.get(f"{service.management_url}/readyz")
        assert ready.status_code == 503
        assert "hangs" in ready.json()["reason"]
    finally:
        os.kill(core, signal.SIGCONT)
    recovered(service, 15)


def test_an_engine_that_hung_while_idle_is_noticed(service: Server, engine: Engine) -> None:
    within(5, engine, False)
    core = engine_core()
    os.kill(core, signal.SIGSTOP)
    try:
        time.sleep(3)
        asked = time.monotonic()
        responses, ended = callers(service, 2)
        assert {response.status_code for response in responses} == {503}
        assert max(ended) - asked <= 12
    finally:
        os.kill(core, signal.SIGCONT)
    recovered(service, 15)


def test_one_that_hangs_while_work_waits_must_be_restarted(engine: Engine, tmp_path: Path) -> None:
    """What kubelet would see, up to the exit status of the probe in the engine's container."""
    limit_s = 15
    launcher = [sys.executable, "-I", vllm_launcher.__file__]
    with (
        sidecar(tmp_path, engine.url, engine_hung_limit_s=limit_s) as service,
        httpx.Client(base_url=service.management_url) as management,
        ThreadPoolExecutor(1) as pool,
    ):

        def dead() -> bool:
            """What the probe says; the engine answers all the while, so it is up."""
            assert management.get("/engine/startz").status_code == 200
            probe = [*launcher, "livez", "--management-url", service.management_url]
            return bool(subprocess.run(probe, check=False, timeout=10).returncode)

        assert not dead()
        assert "vllm:num_requests_running" in management.get("/metrics/engine").text
        core = engine_core()
        try:
            waiting = pool.submit(callers, service, 4)
            within(10, engine, True)
            os.kill(core, signal.SIGSTOP)
            stopped = time.monotonic()
            while not dead():
                assert time.monotonic() - stopped < limit_s + 5
                time.sleep(0.5)
            assert time.monotonic() - stopped > limit_s - 2
            assert {answer.status_code for answer in waiting.result()[0]} <= {200, 503}
        finally:
            os.kill(core, signal.SIGCONT)
        recovered(service, 15)
        assert not dead()


def test_a_dead_engine_is_noticed_and_its_successor_taken(service: Server, engine: Engine) -> None:
    harmed(service, engine, signal.SIGKILL, limit_s=2)
    lane("down", "--port", str(PORT))
    lane("up", "--version", "0.28.0", "--port", str(PORT))
    recovered(service, 30)
    tests = [line for line in service.log_lines() if line["message"] == "isolation self-test"]
    assert [line["isolation"] for line in tests] == ["isolated", "isolated"]
