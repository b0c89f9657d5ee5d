"""The engine as a process group: started in the background, found again, ended whole.

EngineCore is a child in the API server's group, so the group is the unit. A number alone proves
nothing once it may have been reused: the leader's start time is recorded beside it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path

POLL_S = 0.25
STOP_GRACE_S = 15.0
KILL_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Running:
    """A started engine as its state file tells it. `started_ticks` is field 22 of /proc/N/stat."""

    pid: int
    started_ticks: int
    port: int
    version: str
    plugin: bool
    log: str

    def save(self, path: Path) -> None:
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self), indent=1))
        draft.replace(path)


def load(path: Path) -> Running | None:
    try:
        return Running(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None


def _stat(pid: int) -> tuple[str, int, int] | None:
    """(state, process group, start ticks), or None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return fields[0], int(fields[2]), int(fields[19])


def members(engine: Running) -> list[int]:
    """Living processes of the engine's group; empty when its number belongs to someone else now."""
    leader = _stat(engine.pid)
    if leader is not None and leader[2] != engine.started_ticks:
        return []
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None:
            state, group, started = stat
            if group == engine.pid and started >= engine.started_ticks and state not in "ZX":
                found.append(int(entry.name))
    return sorted(found)


def start(command: list[str], variables: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start `command` as the leader of a group of its own."""
    with log.open("wb") as output:
        return subprocess.Popen(
            command, env=variables, cwd="/", stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def started_ticks(child: subprocess.Popen[bytes]) -> int:
    """When it started, in clock ticks since boot; `child` has not been waited for."""
    stat = _stat(child.pid)
    assert stat is not None  # a zombie at worst
    return stat[2]


def stop(engine: Running) -> None:
    """End the whole group: politely first, and surely in the end."""
    for number, grace_s in ((signal.SIGTERM, STOP_GRACE_S), (signal.SIGKILL, KILL_GRACE_S)):
        if not members(engine):
            return
        os.killpg(engine.pid, signal.SIGCONT)  # a stopped process answers no signal but SIGKILL
        os.killpg(engine.pid, number)
        deadline = time.monotonic() + grace_s
        while members(engine) and time.monotonic() < deadline:
            time.sleep(POLL_S)


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
