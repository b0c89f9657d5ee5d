"""What runs in vLLM's container, run as it runs there: by a Python that knows nothing of us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hunyuan_ocr.engines import engine_code

DRAIN_BEGINS_WITHIN_S = 3.0


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    engine_code.install(folder)
    return folder


def start(code: Path, *words: object, **env: str) -> subprocess.Popen[str]:
    # -I: no site-packages of ours, no current folder.
    command = [sys.executable, "-I", str(code / "launcher.py"), *map(str, words)]
    return subprocess.Popen(
        command,
        env=os.environ | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(code: Path, *words: object, **env: str) -> tuple[int, str, str]:
    with start(code, *words, **env) as process:
        out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def test_installing_again_changes_nothing_and_leaves_nothing(code: Path) -> None:
    def files() -> dict[str, bytes]:
        return {str(p.relative_to(code)): p.read_bytes() for p in code.rglob("*") if p.is_file()}

    before = files()
    assert {"launcher.py", "probe.py", "hunyuan_ocr_plugin.py"} <= set(before)
    (code / ".staging").mkdir()  # of an install that was killed
    (code / ".staging" / "half").touch()
    (code / "launcher.py").write_text("of an older release")
    engine_code.install(code)
    assert files() == before


def test_where_the_launcher_is_the_plugin_is(tmp_path: Path) -> None:
    """Who waits for the launcher must not start vLLM without the plugin."""
    (tmp_path / "hunyuan_ocr_plugin.py").mkdir()  # so that it cannot be put there
    with pytest.raises(OSError):  # noqa: PT011
        engine_code.install(tmp_path)
    assert not (tmp_path / "launcher.py").exists()


def test_serve_runs_the_command_and_brings_the_plugin(code: Path) -> None:
    program = (
        "import json, sys, importlib.metadata as m\n"
        "plugins = [e.value for e in m.entry_points(group='vllm.general_plugins')]\n"
        "print(json.dumps([sys.argv[1:], plugins]))\n"
        "sys.exit(3)"
    )
    words = ("serve", "--", sys.executable, "-c", program, "--", "--port", "8000")
    status, out, _ = run(code, *words, PYTHONPATH="/elsewhere")
    arguments, plugins = json.loads(out)
    assert status == 3
    assert arguments == ["--", "--port", "8000"]
    assert plugins == ["hunyuan_ocr_plugin:register"]


AS_FIRST_PROCESS = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")


@pytest.mark.parametrize("handles", [True, False])
def test_serve_ends_at_sigterm_even_before_the_command_handles_it(
    code: Path, handles: bool
) -> None:
    """As a container's first process, whose signals the kernel drops while nobody handles them."""
    handler = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n" if handles else ""
    program = f"import signal, sys\n{handler}print('up', flush=True)\nsignal.pause()"
    words = ("serve", "--", sys.executable, "-c", program)
    command = [*AS_FIRST_PROCESS, sys.executable, "-I", str(code / "launcher.py"), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        os.kill(int(children.read_text().split()[0]), signal.SIGTERM)
        assert process.wait(5) == (5 if handles else 128 + signal.SIGTERM)


def test_a_command_that_cannot_run_is_named(code: Path) -> None:
    status, _, err = run(code, "serve", "--", "no-such-command")
    assert (status, "no-such-command" in err) == (127, True)
    assert run(code, "serve")[0] == 2
    assert run(code, "hold", "--", "vllm")[0] == 2


def children(process: subprocess.Popen[str]) -> dict[int, str]:
    """Command lines by pid."""
    pids = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return {int(pid): Path(f"/proc/{pid}/cmdline").read_text() for pid in pids}


def until(holds: Callable[[], object], within_s: float = 10.0) -> None:
    end_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.02)


WAITS = "import signal; print('up', flush=True); signal.pause()"


def test_a_probe_that_is_killed_comes_back_and_ends_with_the_command(
    code: Path, tmp_path: Path
) -> None:
    file = tmp_path / "gpu.json"
    words = ("serve", "--", sys.executable, "-c", WAITS)
    with start(code, *words, HYOCR_GPU_FILE=str(file)) as process:

        def probes() -> list[int]:
            return [pid for pid, line in children(process).items() if "probe.py" in line]

        def sequence() -> int:
            return int(json.loads(file.read_text())["sequence"]) if file.exists() else -1

        until(lambda: sequence() >= 1)
        first = probes()
        os.kill(first[0], signal.SIGKILL)
        until(lambda: probes() not in ([], first))
        file.unlink()
        until(lambda: sequence() >= 0)
        (last,) = probes()
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 128 + signal.SIGTERM
        until(lambda: not Path(f"/proc/{last}/exe").exists())


def test_a_probe_that_cannot_run_is_tried_again_ever_more_seldom(
    code: Path, tmp_path: Path
) -> None:
    (code / "probe.py").write_text(
        f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\nraise OSError"
    )
    program = "import time, sys; time.sleep(4.5); sys.exit(9)"
    status, _, err = run(code, "serve", "--", sys.executable, "-c", program)
    assert status == 9
    assert (tmp_path / "runs").read_text() == "xxx"  # after 0, 1 and 3 s
    assert "the GPU probe ended; it is started again in 4 s" in err


def test_serve_does_without_the_probe(code: Path, tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    words = ("serve", "--", sys.executable, "-c", "import time; time.sleep(1); print('done')")
    off = run(code, *words, HYOCR_GPU_FILE=str(file), HYOCR_GPU_PROBE="none")
    (code / "probe.py").unlink()
    missing = run(code, *words, HYOCR_GPU_FILE=str(file))
    assert off == missing == (0, "done\n", "")
    assert not file.exists()


def test_hold_returns_soon_where_no_drain_begins(code: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    assert run(code, "hold", HYOCR_MARKERS_DIRECTORY=str(tmp_path))[0] == 0
    assert DRAIN_BEGINS_WITHIN_S <= time.monotonic() - began < DRAIN_BEGINS_WITHIN_S + 5


@pytest.mark.parametrize("ends", ["drained", "restarted"])
def test_hold_waits_for_the_end_of_a_drain(code: Path, tmp_path: Path, ends: str) -> None:
    with start(code, "hold", "--markers", tmp_path) as process:
        time.sleep(1)
        (tmp_path / "draining").touch()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(DRAIN_BEGINS_WITHIN_S + 1)
        if ends == "drained":
            (tmp_path / "drained").touch()
        else:  # the service came back and cleared its markers
            (tmp_path / "draining").unlink()
        assert process.wait(5) == 0


def test_hold_returns_at_once_from_a_drain_that_is_over(code: Path, tmp_path: Path) -> None:
    for name in ("draining", "drained"):
        (tmp_path / name).touch()
    began = time.monotonic()
    assert run(code, "hold", "--markers", tmp_path)[0] == 0
    assert time.monotonic() - began < DRAIN_BEGINS_WITHIN_S


@contextmanager
def management(status: int | None) -> Iterator[str]:
    """Answers every request with `status`, or never."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if status is None:
                over.wait()
                return
            body = json.dumps({"path": self.path}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            over.set()
            server.shutdown()


@pytest.mark.parametrize(("status", "verdict"), [(200, 0), (503, 1), (404, 0), (500, 0), (None, 0)])
def test_livez_says_dead_only_where_the_service_does(
    code: Path, status: int | None, verdict: int
) -> None:
    with management(status) as url:
        began = time.monotonic()
        got, _, err = run(code, "livez", HYOCR_MANAGEMENT_URL=url)
        assert time.monotonic() - began < 5
    assert got == verdict
    assert status is None or "/engine/livez" in err


def test_livez_spares_an_engine_whose_service_is_down(code: Path) -> None:
    status, _, err = run(code, "livez", "--management-url", "http://127.0.0.1:1")
    assert (status, "not reached" in err) == (0, True)
