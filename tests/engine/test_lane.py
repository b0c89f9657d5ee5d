"""The lane ends what it started, all of it and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.engine import process

FAMILY = "sleep 60 & trap '' TERM; sleep 60 & wait"  # a leader deaf to SIGTERM, two children


@pytest.fixture(name="family")
def _family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[process.Running]:
    monkeypatch.setattr(process, "STOP_GRACE_S", 0.5)
    log = tmp_path / "log"
    child = process.start(["sh", "-c", FAMILY], dict(os.environ), log)
    ticks = process.started_ticks(child)
    running = process.Running(child.pid, ticks, 1, "0.28.0", plugin=True, log=str(log))
    for _ in range(200):
        if len(process.members(running)) == 3:
            break
        time.sleep(0.02)
    yield running
    process.stop(running)
    child.wait(timeout=5)


def test_the_whole_group_ends_even_without_its_leader(family: process.Running) -> None:
    os.kill(family.pid, signal.SIGKILL)
    time.sleep(0.1)
    assert len(process.members(family)) == 2
    process.stop(family)
    assert process.members(family) == []


def test_a_stopped_and_deaf_group_ends(family: process.Running) -> None:
    os.killpg(family.pid, signal.SIGSTOP)
    process.stop(family)
    assert process.members(family) == []


def test_a_number_that_belongs_to_someone_else_now_is_left_alone(family: process.Running) -> None:
    other = replace(family, started_ticks=family.started_ticks - 1)
    process.stop(other)
    assert len(process.members(family)) == 3


def test_state_survives_the_command_that_wrote_it(family: process.Running, tmp_path: Path) -> None:
    family.save(tmp_path / "state.json")
    assert process.load(tmp_path / "state.json") == family
    assert process.load(tmp_path / "other.json") is None


def test_the_command_line_explains_itself() -> None:
    lane = Path(process.__file__).with_name("lane.py")
    text = subprocess.run(["python3", str(lane), "--help"], capture_output=True, text=True).stdout
    assert "examples:" in text
