"""The probe as it runs beside vLLM, on a library of our own, and on NVIDIA's where there is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hunyuan_ocr.gpu import probe
from tests.gpu.fake_card import Card as Card
from tests.gpu.fake_card import compiled

Json = dict[str, Any]


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(tmp_path_factory.mktemp("nvml"), "-DOLD_DRIVER")


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Card:
    for name in probe.NAMED_BY:
        monkeypatch.delenv(name, raising=False)
    script = tmp_path / "script"
    monkeypatch.setenv("FAKE_NVML", str(script))
    found = Card(script)
    found()
    return found


def has_real_library() -> bool:
    command = [sys.executable, "-I", probe.__file__, "--once"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(params=["fake", *(["real"] if has_real_library() else [])])
def library(request: pytest.FixtureRequest, fake_library: str, card: Card) -> str:
    return fake_library if request.param == "fake" else probe.LIBRARY


@dataclass
class Running:
    """A probe that runs, and what it writes."""

    process: subprocess.Popen[str]
    file: Path

    def report(self) -> Json:
        report: Json = json.loads(self.file.read_text())
        return report

    def until(self, holds: Callable[[Json], bool], within_s: float = 10.0) -> Json:
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s:
            if self.file.exists() and holds(report := self.report()):
                return report
            time.sleep(0.005)
        raise AssertionError(f"not within {within_s} s: {self.file.exists() and self.report()}")

    def until_state(self, state: str, within_s: float = 10.0) -> Json:
        return self.until(lambda report: bool(report["state"] == state), within_s)

    def readers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]


# Seconds of the real one are too long for a test; what it does in them is the same.
QUICKLY = """
import subprocess, sys
sys.path.insert(0, {folder!r})
import probe
probe.HUNG_AFTER_S, probe.KILL_AFTER_S = {hung_after_s}, 1.5
probe.RETRY_AFTER_S = dict.fromkeys(probe.RETRY_AFTER_S, 0.1)
{more}
sys.exit(probe.main(sys.argv[1:]))
"""


def command(*options: str, hung_after_s: float, more: str = "") -> list[str]:
    folder = str(Path(probe.__file__).parent)
    program = QUICKLY.format(folder=folder, hung_after_s=hung_after_s, more=more)
    return [sys.executable, "-I", "-c", program, *options]


@contextmanager
def running(library: str, file: Path, period_s: float = 0.05, more: str = "") -> Iterator[Running]:
    options = ("--library", library, "--file", str(file), "--period-s", str(period_s))
    with subprocess.Popen(
        command(*options, hung_after_s=0.4, more=more), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Running(process, file)
        finally:
            process.kill()


def once(*options: str, **env: str) -> tuple[int, str]:
    done = subprocess.run(
        command("--once", *options, hung_after_s=1.0),
        env=os.environ | env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def once_json(library: str, **env: str) -> Json:
    status, out = once("--json", "--library", library, **env)
    report: Json = json.loads(out)
    assert status == probe.EXIT_CODES[report["state"]]
    return report
