"""The command line as a person uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.api.engine_standin import stand_in
from tests.api.server import Server
from tests.pictures import LINES, picture, png_bytes

TEXT = "\n".join(LINES)


def run(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "hunyuan-ocr"), *map(str, arguments)]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HYOCR_")}
    return subprocess.run(
        command, capture_output=True, text=True, env=clean | env, timeout=120, check=False
    )


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    path = tmp_path / "scan.png"
    path.write_bytes(png_bytes())
    return path


def test_read_here_prints_the_text(scan: Path) -> None:
    done = run("read", scan)
    assert (done.returncode, done.stdout) == (0, TEXT + "\n"), done.stderr


def test_read_by_a_server_writes_files_beside(server: Server, scan: Path, tmp_path: Path) -> None:
    pages = tmp_path / "pages.pdf"
    first, second = picture(["Page one 1"])[0], picture(["Page two 2"])[0]
    first.save(pages, save_all=True, append_images=[second])
    answers = tmp_path / "answers"
    done = run("read", scan, pages, "--server", server.url, "--format", "json", "--output", answers)
    assert done.returncode == 0, done.stderr
    assert json.loads((answers / "scan.png.json").read_text())[0]["text"] == TEXT
    read = json.loads((answers / "pages.pdf.json").read_text())
    assert [page["text"] for page in read] == ["Page one 1", "Page two 2"]


def test_a_file_that_cannot_be_read_does_not_cost_the_others(
    server: Server, scan: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"not a picture")
    done = run("read", bad, scan, "--server", server.url)
    assert done.returncode == 1
    assert "unsupported_format" in done.stderr
    assert done.stdout == TEXT + "\n"


def test_answers_never_overwrite_each_other(server: Server, scan: Path, tmp_path: Path) -> None:
    twin = tmp_path / "twin" / scan.name
    twin.parent.mkdir()
    twin.write_bytes(scan.read_bytes())
    done = run("read", scan, twin, "--server", server.url, "--output", tmp_path / "answers")
    assert done.returncode == 1
    assert "same name" in done.stderr
    done = run("read", scan, "--server", server.url, "--output", "/proc/answers")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_no_server_there(scan: Path) -> None:
    done = run("read", scan, "--server", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_read_here_waits_for_an_engine_that_starts(scan: Path, tmp_path: Path) -> None:
    with stand_in(tmp_path, 1) as engine:
        env = {"ENGINE": "vllm", "VLLM_URL": engine.url, "ISOLATION_CHECK": "warn"}
        done = run("read", scan, **{f"HYOCR_{name}": value for name, value in env.items()})
    assert (done.returncode, bool(done.stdout.strip())) == (0, True), done.stderr


PAGE = '{"index": 0, "pages_expected": 2, "status": "ok", "text": "one"}\n'


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (PAGE, "broke off"),
        (PAGE + PAGE[:20], "no answer of this service"),
        ("<html>\n<h1>Log in</h1>\n</html>\n", "no answer of this service"),
        ("<html>Log in</html>", "no answer of this service"),
        ("[]\n", "no answer of this service"),
        ("", "broke off"),
    ],
)
def test_what_is_no_whole_answer_is_no_success(body: str, why: str, scan: Path) -> None:
    with answering(body) as url:
        done = run("read", scan, "--server", url)
    assert done.returncode == 1
    assert why in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@contextmanager
def answering(body: str) -> Iterator[str]:
    """A server that says the same to everybody, and ends the connection to end it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_names_of_files_are_told_as_they_are(server: Server, scan: Path, tmp_path: Path) -> None:
    gone, odd = tmp_path / "fifo[old]", tmp_path / "r[red]v.png"
    gone.symlink_to("/proc/self/mem")  # can be opened, and not read
    odd.write_bytes(b"no picture")
    done = run("read", gone, odd, scan, "--server", server.url)
    assert done.returncode == 1
    told = "".join(done.stderr.split())
    assert "fifo[old]" in told
    assert "r[red]v.png" in told
    assert done.stdout == TEXT + "\n"


def test_the_callers_key_is_no_unknown_setting(scan: Path) -> None:
    done = run("read", scan, HYOCR_API_KEY="a.b")
    assert (done.returncode, done.stdout) == (0, TEXT + "\n"), done.stderr


def test_check() -> None:
    done = run("check", HYOCR_EMBEDDED_WORKERS="1", HYOCR_DECODE_WORKERS="1")
    assert (done.returncode, "ready" in done.stdout) == (0, True), done.stderr


def test_bad_settings_are_named() -> None:
    done = run("check", HYOCR_PORT="high", HYOCR_MAX_PAGES="0")
    assert done.returncode == 2
    assert "HYOCR_PORT" in done.stderr
    assert "HYOCR_MAX_PAGES" in done.stderr
    for name, value in (("SPOOL_DIRECTORY", "/nonexistent"), ("VLLM_URL", "garbage")):
        done = run("check", **{f"HYOCR_{name}": value})
        assert done.returncode == 2
        assert f"HYOCR_{name}" in done.stderr
    done = run("check", HYOCR_PORT="7000", HYOCR_MANAGEMENT_PORT="7000")
    assert done.returncode == 2
    done = run("serve", HYOCR_MAX_PAGE="5")
    assert done.returncode == 2
    assert "HYOCR_MAX_PAGE" in done.stderr


def test_new_key() -> None:
    done = run("new-key", "billing")
    key, entry = done.stdout.split()
    assert key.startswith("billing.")
    assert entry.startswith("billing:")
    assert key.split(".")[1] not in entry
    assert run("new-key", "a.b").returncode == 2


def test_help_shows_examples() -> None:
    for command in ("serve", "read", "new-key"):
        done = run(command, "--help")
        assert done.returncode == 0
        assert "xample" in done.stdout
    assert run("--version").stdout.strip()
