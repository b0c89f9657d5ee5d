"""A service that leaves while callers are at it: nothing is lost, and the engine hears of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.api.server import Server, running_server
from tests.files import tiff_pages
from tests.pictures import LINES, picture, png_bytes

TEXT = "\n".join(LINES)
PNG = {"Content-Type": "image/png"}
PROPAGATION_S = 2.0


@dataclass(frozen=True)
class Leaving:
    """A service that can be drained; `markers` and `control` are those of its settings."""

    server: Server
    markers: Path
    control: Path

    def drain(self, *options: str) -> subprocess.Popen[str]:
        """The command, as kubelet runs it in the service's own container."""
        env = os.environ | {"HYOCR_CONTROL_SOCKET": str(self.control)}
        command = [str(Path(sys.executable).parent / "hunyuan-ocr"), "drain", *options]
        return subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def drained(self, *options: str) -> tuple[int, str, str]:
        with self.drain(*options) as process:
            out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def marked(self) -> set[str]:
        return {path.name for path in self.markers.iterdir()}

    def until(self, condition: Callable[[], bool], seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def until_marked(self, name: str) -> None:
        self.until(lambda: name in self.marked())


@contextmanager
def leaving(folder: Path, **settings: object) -> Iterator[Leaving]:
    markers = folder / "markers"
    markers.mkdir(exist_ok=True)
    control = folder / "control"
    given: dict[str, Any] = {
        "markers_directory": markers,
        "control_socket": control,
        "drain_propagation_s": 0,
        "embedded_workers": 1,
        "decode_workers": 1,
        **settings,
    }
    with running_server(folder, **given) as server:
        yield Leaving(server, markers, control)


def post_page(server: Server) -> httpx.Response:
    return httpx.post(f"{server.url}/ocr", content=png_bytes(), headers=PNG, timeout=60)


def post_document(server: Server, pages: int) -> httpx.Response:
    document = tiff_pages([picture()[0]] * pages)
    tiff = {"Content-Type": "image/tiff"}
    return httpx.post(f"{server.url}/v1/ocr", content=document, headers=tiff, timeout=120)


def is_clean_refusal(response: httpx.Response) -> bool:
    return (
        response.status_code == 503
        and response.headers["content-type"] == "application/problem+json"
        and response.json()["code"] == "draining"
        and int(response.headers["retry-after"]) >= 1
        and response.headers["connection"] == "close"
    )


@dataclass
class Caller:
    """Posts page after page over one kept connection; `answers` with the time each came."""

    server: Server
    over: threading.Event
    answers: list[tuple[float, httpx.Response]] = field(default_factory=list)

    def __call__(self) -> None:
        with self.server.client() as client:
            while not self.over.is_set():
                answer = client.post("/ocr", content=png_bytes(), headers=PNG)
                self.answers.append((time.monotonic(), answer))


def test_callers_that_keep_their_connections_lose_nothing(tmp_path: Path) -> None:
    over = threading.Event()
    with leaving(tmp_path, drain_propagation_s=PROPAGATION_S) as pod, ThreadPoolExecutor(4) as pool:
        callers = [Caller(pod.server, over) for _ in range(4)]
        calling = [pool.submit(caller) for caller in callers]
        try:
            pod.until(lambda: all(len(caller.answers) > 2 for caller in callers))
            with pod.drain() as process:
                pod.until_marked("draining")
                began = time.monotonic()
                ready = httpx.get(f"{pod.server.management_url}/readyz")
                assert (ready.status_code, "draining" in ready.text) == (503, True)
                assert post_page(pod.server).json() == {"text": TEXT}
                assert pod.marked() == {"draining"}
                out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            ended = time.monotonic()
            assert pod.marked() == {"draining", "drained"}
            pod.until(lambda: all(caller.answers[-1][0] > ended for caller in callers))
        finally:
            over.set()
        for each in calling:
            each.result()  # no request was left without an answer
        assert httpx.get(f"{pod.server.management_url}/livez").status_code == 200
    assert ended - began >= PROPAGATION_S - 0.5
    assert "in flight" in out
    assert out.endswith("drained\n")
    answers = sorted((when, answer) for caller in callers for when, answer in caller.answers)
    for when, answer in answers:
        served = answer.status_code == 200 and answer.json() == {"text": TEXT}
        assert served or is_clean_refusal(answer), answer.text
        if when < began - 0.5:
            assert "connection" not in answer.headers
        if served and when > began + 0.5:
            assert answer.headers["connection"] == "close"
        if when > ended:
            assert not served
    assert [a for when, a in answers if a.status_code == 200 and when > began + 0.5]


def test_a_long_document_answers_with_what_was_begun(tmp_path: Path) -> None:
    with leaving(tmp_path) as pod, ThreadPoolExecutor(2) as pool:
        reading = pool.submit(post_document, pod.server, 60)
        pod.until(lambda: pod.server.metric("hunyuan_ocr_pages_total") >= 1)
        single = pool.submit(post_page, pod.server)  # waits behind the pages of the document
        pod.until(lambda: pod.server.metric("hunyuan_ocr_pages_waiting") >= 1)
        code, out, err = pod.drained()
        assert (code, "pages" in out) == (0, True), err
        assert reading.done() or reading.result(5)  # answered before the command ended
        answer = reading.result()
        assert single.result().json() == {"text": TEXT}
    assert answer.status_code == 200
    pages = answer.json()["pages"]
    assert [page["index"] for page in pages] == list(range(60))
    assert answer.json()["truncated"] is True
    done = [page for page in pages if page["status"] == "ok"]
    assert 0 < len(done) < 60
    assert all(page["text"] == TEXT for page in done)
    left = {page["problem"]["code"] for page in pages if page["status"] == "error"}
    assert left == {"draining"}


def test_a_client_that_is_still_sending_gets_its_refusal(tmp_path: Path) -> None:
    body = bytes(20_000_000)
    with leaving(tmp_path) as pod:
        assert pod.drained()[0] == 0
        before = pod.server.rss_megabytes()
        for path in ("/ocr", "/v1/ocr", "/v1/chat/completions"):
            assert is_clean_refusal(httpx.post(f"{pod.server.url}{path}", content=body, timeout=30))
        # One that sends all before it reads anything, as simple clients do.
        address = urlsplit(pod.server.url)
        with socket.create_connection((address.hostname or "", address.port or 0), 30) as client:
            head = f"POST /ocr HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        assert b" 503 " in answer.split(b"\r\n")[0]
        assert b'"draining"' in answer
        assert pod.server.peak_rss_megabytes() < before + 30
        assert httpx.get(f"{pod.server.url}/openapi.json").status_code == 200


def test_sigterm_takes_the_same_way_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        with leaving(tmp_path, drain_propagation_s=600) as pod:
            reading = pool.submit(post_document, pod.server, 60)
            pod.until(lambda: pod.server.metric("hunyuan_ocr_pages_total") >= 1)
            os.kill(pod.server.pid, signal.SIGTERM)
            pod.until_marked("draining")
            assert is_clean_refusal(post_page(pod.server))
            assert httpx.get(f"{pod.server.management_url}/readyz").status_code == 503
        assert pod.marked() == {"draining", "drained"}
        pages = reading.result().json()["pages"]
    assert len(pages) == 60
    assert {page.get("problem", {}).get("code") for page in pages if page["status"] != "ok"} == {
        "draining"
    }
    messages = [line["message"] for line in pod.server.log_lines()]
    assert messages.index("draining") < messages.index("drained")
    assert not [line for line in pod.server.log_lines() if line["level"] == "error"]


def test_grace_is_the_longest_wait_after_sigterm(tmp_path: Path) -> None:
    with ExitStack() as connections:
        with leaving(tmp_path, shutdown_grace_s=1, body_timeout_s=60) as pod:
            address = urlsplit(pod.server.url)
            slow = connections.enter_context(
                socket.create_connection((address.hostname or "", address.port or 0), 30)
            )
            slow.sendall(b"POST /ocr HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
            pod.until(lambda: pod.server.metric("hunyuan_ocr_body_bytes") > 0)
            began = time.monotonic()
        assert 1 <= time.monotonic() - began < 8


def test_two_drains_are_one(tmp_path: Path) -> None:
    with leaving(tmp_path, drain_propagation_s=PROPAGATION_S) as pod:
        began = time.monotonic()
        with pod.drain() as first:
            pod.until_marked("draining")
            time.sleep(PROPAGATION_S / 2)
            assert pod.drained()[0] == 0
            assert time.monotonic() - began < 2 * PROPAGATION_S + 1
            assert first.wait(5) == 0
        assert pod.drained()[1] == "drained\n"


def test_waiting_may_be_bounded(tmp_path: Path) -> None:
    with leaving(tmp_path, drain_propagation_s=600) as pod:
        code, _, err = pod.drained("--timeout-s", "1")
        assert (code, "goes on" in err) == (1, True)


def test_the_socket_is_the_services_own(tmp_path: Path) -> None:
    control = tmp_path / "control"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(control))  # as a process leaves it that was killed
    for name in ("draining", "drained"):
        (tmp_path / "markers").mkdir(exist_ok=True)
        (tmp_path / "markers" / name).touch()
    with leaving(tmp_path) as pod:
        assert control.stat().st_mode & 0o777 == 0o600
        assert pod.marked() == set()
        with pytest.raises(AssertionError, match="another process listens"), leaving(tmp_path):
            pass
        assert pod.drained()[0] == 0
    assert not control.exists()
    control.write_text("somebody's file")
    with pytest.raises(AssertionError, match="no socket"), leaving(tmp_path):
        pass
    assert control.read_text() == "somebody's file"


@pytest.mark.parametrize(
    ("options", "status", "advice"),
    [([], 2, "HYOCR_CONTROL_SOCKET"), (["--socket", "/nowhere"], 1, "hunyuan-ocr serve")],
)
def test_a_drain_of_nothing_says_what_to_do(options: list[str], status: int, advice: str) -> None:
    command = [str(Path(sys.executable).parent / "hunyuan-ocr"), "drain", *options]
    env = {k: v for k, v in os.environ.items() if not k.startswith("HYOCR_")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, advice in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr
