"""The sweep of engines, with the fake server and small scripts as engines."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadtest import engines
from loadtest.cli import app
from loadtest.engine_table import COLUMNS, rows
from loadtest.engines import (
    CARD,
    Cell,
    CommandUnusable,
    Ended,
    Outing,
    StartFailed,
    check,
    command,
    grid,
)
from loadtest.fake_law import Law
from loadtest.slo import Slo
from tests.api.server import free_ports
from tests.loadtest.findings import step

VLLM = (
    "vllm serve model --port $port --max-num-seqs $max_num_seqs --gpu-memory-utilization "
    "$gpu_memory_utilization $chunked_prefill --mm-processor-kwargs '{\"max_pixels\": $max_pixels}'"
)


def test_every_combination_is_started_with_its_flags() -> None:
    cells = grid([8, 16], [0.9], ["on", "off"], [1048576])
    assert len(cells) == 4
    check(VLLM, cells)
    assert command(VLLM, cells[1], 8000) == [
        "vllm", "serve", "model", "--port", "8000", "--max-num-seqs", "8",
        "--gpu-memory-utilization", "0.9", "--no-enable-chunked-prefill",
        "--mm-processor-kwargs", '{"max_pixels": 1048576}',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("vllm serve --port $port", "max_num_seqs"),
        ("vllm serve --max-num-seqs $max_num_seqs", "port"),
        ("vllm serve --port $port --max-num-seqs $max_num_seqs $model", "model"),
        ("vllm serve --port $port --max-num-seqs $max_num_seqs --threads $(nproc)", "dollar"),
    ],
)
def test_a_command_that_leaves_out_what_is_varied_is_refused(template: str, why: str) -> None:
    with pytest.raises(CommandUnusable, match=why):
        check(template, grid([8, 16], [0.9], ["on"], [1048576]))


async def test_an_engine_that_dies_or_never_answers_is_told_and_gone(tmp_path: Path) -> None:
    log, url = tmp_path / "log", "http://127.0.0.1:9"
    dying = [sys.executable, "-c", "raise SystemExit('CUDA out of memory')"]
    with pytest.raises(StartFailed, match="ended with 1"):
        async with engines.running(dying, os.environ, log, url, 20):
            pass
    assert engines.ran_out_of_memory(log)
    # Its child would outlive it.
    waiting = ["sh", "-c", f"sleep 300 & echo $! > {tmp_path}/child; sleep 300"]
    with pytest.raises(StartFailed, match="within 1 s"):
        async with engines.running(waiting, os.environ, log, url, 1):
            pass
    child = int((tmp_path / "child").read_text())
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"
    with pytest.raises(StartFailed, match="No such file"):
        async with engines.running(["/no/such/engine"], {}, log, url, 1):
            pass


async def test_a_server_that_was_there_is_not_taken_for_the_engine(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(StartFailed, match="already"):
        async with server, engines.running(["sleep", "9"], os.environ, tmp_path / "log", url, 9):
            pass


async def test_an_engine_that_ends_under_its_load_is_told(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    words = [sys.executable, "-m", "loadtest.fake_server", "--port", str(port)]

    async def killed() -> None:
        async with engines.running(words, os.environ, tmp_path / "log", url, 30):
            os.kill(_child(words), signal.SIGKILL)
            await asyncio.sleep(0.5)

    with pytest.raises(Ended, match="ended with -9"):
        await killed()


def _child(words: list[str]) -> int:
    """The process that these words started."""
    line = "\0".join(words).encode()
    return next(
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.read_bytes().rstrip(b"\0") == line
    )


def test_a_line_sums_up_the_runs_of_a_cell() -> None:
    cell = Cell(16, 0.9, "on", 1048576)
    measured = step(Law(0.5, 16), 16, Slo(5.0), gpu={"memory_used_gb": 21.0, "utilization": 0.5})
    outings = [Outing(cell, 60.0, measured, False), Outing(cell, 0.0, None, True, "ended with 1")]
    (line,) = rows(outings)
    found = dict(zip(COLUMNS, line, strict=True))
    assert found["runs"] == "2"
    assert found["started"] == "1"
    assert found["out of memory"] == "50%"
    assert found["answers/s"] == "32"
    assert found["peak GB"] == "21.0"
    assert found["GPU busy"] == "50%"


def test_two_engines_are_measured_one_after_the_other(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    template = (
        f"{sys.executable} -m loadtest.fake_server --port $port --service-s 0.2 "
        "--knee $max_num_seqs --cv 0.1"
    )
    done = CliRunner().invoke(
        app,
        ["engine-sweep", "--command", template, "--max-num-seqs", "1,4", "--runs", "1",
         "--port", str(port), "--concurrency", "4", "--warm-up", "0.2", "--seconds", "2",
         "--pages", "64x64", "--distinct", "1", "--output", str(tmp_path)],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    _, _, *lines = (tmp_path / "engines.md").read_text().splitlines()
    per_s = [float(line.split("|")[8]) for line in lines]
    assert 3 <= per_s[0] <= 6
    assert per_s[1] > 2 * per_s[0]


# A torch that is as much of one as the card's hook touches.
TORCH = """
class cuda:
    queued, fractions, started = [], {}, False
    @staticmethod
    def _lazy_call(call): cuda.queued.append(call)
    @staticmethod
    def device_count(): return 2
    @staticmethod
    def get_device_properties(device):
        return type("Properties", (), {"total_memory": 140_000_000_000})
    @staticmethod
    def set_per_process_memory_fraction(fraction, device): cuda.fractions[device] = fraction
    @staticmethod
    def mem_get_info(device=None): return 130_000_000_000, 140_000_000_000
"""
LOOKS = """
import torch
assert torch.cuda.fractions == {}, "CUDA must not be started by an import"
for call in torch.cuda.queued: call()
print(torch.cuda.fractions, torch.cuda.mem_get_info())
"""


@pytest.mark.parametrize(
    ("card_gb", "seen"),
    [
        (28, "{0: 0.2, 1: 0.2} (18000000000, 28000000000)"),
        (200, "{0: 1.0, 1: 1.0} (130000000000, 140000000000)"),
        (None, "{} (130000000000, 140000000000)"),
    ],
)
def test_an_engine_sees_a_smaller_card(card_gb: float | None, seen: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    variables = engines.environment(card_gb, {**os.environ, "PYTHONPATH": str(tmp_path)})
    done = subprocess.run(
        [sys.executable, "-c", LOOKS], env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == seen


def test_processes_without_torch_do_not_notice() -> None:
    began = time.monotonic()
    variables = engines.environment(24, os.environ)
    subprocess.run([sys.executable, "-c", "import json"], env=variables, check=True)
    assert time.monotonic() - began < 5
    assert (CARD / "sitecustomize.py").is_file()
