"""One vLLM as a process group: started with the chart's flags, watched, ended whole."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.http import get_status
from scripts.engine.serve import ENVIRONMENT, SERVED_NAMES

CORE_TITLE = "VLLM::EngineCore"
# What the chart sets whatever the version; limits are left to each trial.
FLAGS = (
    "--host", "127.0.0.1",
    "--limit-mm-per-prompt", '{"image":1}',
    "--no-enable-prefix-caching",
    "--mm-processor-cache-gb", "0",
    "--allowed-media-domains", "images.invalid",
    "--enable-request-id-headers",
)  # fmt: skip


def _processes() -> Iterator[tuple[int, int]]:
    """(pid, parent) of every process."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            yield int(entry.name), int(fields[1])


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()[:60]
    except OSError:
        return ""


class StartError(Exception):
    """The engine ended, or did not become healthy in time; its log says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to start one engine. `python_path` holds folders with vLLM's wheels and the plugin."""

    python: str
    python_path: Sequence[Path]
    model: Path
    port: int
    flags: Sequence[str]
    variables: Mapping[str, str]
    log: Path

    def command(self) -> list[str]:
        return [
            self.python, "-m", "vllm.entrypoints.openai.api_server",
            "--model", str(self.model), "--port", str(self.port),
            "--served-model-name", *SERVED_NAMES, *FLAGS, *self.flags,
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        path = (
            {"PYTHONPATH": os.pathsep.join(map(str, self.python_path))} if self.python_path else {}
        )
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        return inherited | ENVIRONMENT | path | dict(self.variables)


@dataclass(slots=True)
class Server:
    plan: Plan
    process: subprocess.Popen[bytes]
    started: float
    healthy_after_s: float = 0.0

    @classmethod
    def start(cls, plan: Plan, timeout_s: float) -> Server:
        """Start it and wait until /health answers 200.

        Raises:
            StartError: it ended, or the time is up; nothing of it is left running.
        """
        with plan.log.open("wb") as log:
            process = subprocess.Popen(
                plan.command(), env=plan.environment(), stdout=log, stderr=subprocess.STDOUT,
                cwd="/", start_new_session=True,
            )  # fmt: skip
        server = cls(plan, process, time.monotonic())
        while time.monotonic() - server.started < timeout_s:
            if process.poll() is not None:
                server.stop()
                raise StartError(f"exit code {process.returncode}")
            if get_status(plan.port, "/health", 2.0) == 200:
                server.healthy_after_s = round(time.monotonic() - server.started, 1)
                return server
            time.sleep(0.2)
        server.stop()
        raise StartError(f"not healthy after {timeout_s:.0f} s")

    def core(self) -> int | None:
        """EngineCore's pid, while it lives."""
        return next((pid for pid, title in self.pids().items() if CORE_TITLE in title), None)

    def pids(self) -> dict[int, str]:
        """Processes of this server by pid, each with its title."""
        found = {self.process.pid: "api server"}
        parents = dict(_processes())
        for pid in parents:
            above = parents.get(pid)
            while above is not None and above != self.process.pid:
                above = parents.get(above)
            if above is not None:
                found[pid] = _title(pid)
        return found

    def stop(self) -> None:
        for number in (signal.SIGCONT, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                return
        self.process.wait()
