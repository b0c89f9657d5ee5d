"""Real engines for the tests, brought up and ended through the lane's own command line.

Each needs 3 GB: the one under test stays for the whole run, the others only while their tests do.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.api.server import Server
from tests.engine.sidecar import sidecar

ROOT = Path(__file__).resolve().parents[2]
LANE = ROOT / "scripts" / "engine" / "lane.py"
FAULTS = Path(__file__).with_name("faults")


@dataclass(frozen=True, slots=True)
class Engine:
    """A healthy vLLM. `url` has no path; `log` is what its processes printed."""

    url: str
    version: str
    log: Path


def lane(*arguments: str) -> str:
    """Run a command of the lane; its output, or the test's failure."""
    command = [sys.executable, str(LANE), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"lane.py {' '.join(arguments)}\n{done.stdout}{done.stderr}", pytrace=False)
    return done.stdout


@contextmanager
def running(version: str, port: int, *arguments: str) -> Iterator[Engine]:
    """Start an engine, ending what an earlier run of the tests may have left on the port."""
    lane("down", "--port", str(port))
    lane("up", "--version", version, "--port", str(port), *arguments)
    log = next(
        line.rpartition("log ")[2]
        for line in lane("status").splitlines()
        if line.startswith(f"port {port}:")
    )
    try:
        yield Engine(f"http://127.0.0.1:{port}", version, Path(log))
    finally:
        lane("down", "--port", str(port))


@pytest.fixture(scope="session")
def native_engine() -> Iterator[Engine]:
    """The engine under test: 0.28.0, native model, with the plugin."""
    with running("0.28.0", 8128) as engine:
        yield engine


@pytest.fixture(scope="module")
def service(native_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service before the engine under test."""
    with sidecar(tmp_path_factory.mktemp("sidecar"), native_engine.url) as server:
        yield server


@pytest.fixture(scope="class")
def leaking_engine() -> Iterator[Engine]:
    """The negative control: 0.32.0 as shipped."""
    with running("0.32.0", 8132, "--no-plugin") as engine:
        yield engine


@pytest.fixture(scope="class")
def patched_engine() -> Iterator[Engine]:
    """0.32.0 with the plugin."""
    with running("0.32.0", 8132) as engine:
        yield engine


@pytest.fixture(scope="class")
def serial_engine() -> Iterator[Engine]:
    """0.28.0 with one request at a time: no two images ever share an encoder step."""
    with running("0.28.0", 8132, "--max-num-seqs", "1") as engine:
        yield engine


@pytest.fixture(scope="class")
def faulty_engine() -> Iterator[Engine]:
    """0.28.0 with the plugin, and an encoder that gives one image a row of its neighbour."""
    with running("0.28.0", 8132, "--extra-plugin", str(FAULTS / "shifted_rows")) as engine:
        yield engine
