"""A real service and a real probe before a simulated card, in real time.

card -> library in place of NVML -> probe -> its file -> service -> stand-in engine -> card

The engine is as slow as the card's clock makes it, and the card as busy as the engine.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.heatwave.card import Card, CardParameters
from benchmarks.heatwave.run import Run, Second
from benchmarks.heatwave.service import Load
from benchmarks.heatwave.waves import Wave
from benchmarks.open_loop import read_rest, read_status
from hunyuan_ocr import control
from hunyuan_ocr.gpu import probe
from hunyuan_ocr.traffic.breaker_states import Reason, State, Transition
from hunyuan_ocr.traffic.thermal import RTX_4090_D
from tests.api.engine_standin import server_before, stand_in
from tests.api.server import Server
from tests.gpu import fake_card

LOAD = Load()
# The stand-in's law that is `Load.pages_per_s`.
_CONTENTION = 1 / (1 + LOAD.half_at)
_PAGE_MS = 1e3 * (1 + LOAD.half_at) / LOAD.most
# Longer than anybody waits.
_HUNG_MS = 600e3
_STEP_S = 0.1
_NOTICED = 0.03
# So slow is nothing: latency alone would protect the card too.
_NEVER_SLOW = 1000
_GPU_LOST = 15
_BITS = {name: bit for bit, name in probe.REASONS.items()}
_RUNNING = re.compile(r"num_requests_running\S* (\d+)")


class _Engine:
    """The stand-in's page time and load, over one connection: asked ten times a second."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._page_ms = _PAGE_MS

    async def _ask(self, method: str, path: str) -> str:
        self._writer.write(f"{method} {path} HTTP/1.1\r\nhost: benchmark\r\n\r\n".encode())
        _, head = await read_status(self._reader)
        return (await read_rest(self._reader, head)).decode()

    async def work(self) -> float:
        """What it does now, 0 to 1 of what all slots would give it."""
        found = _RUNNING.search(await self._ask("GET", "/metrics"))
        assert found
        in_flight = min(int(found[1]), LOAD.slots)
        return LOAD.pages_per_s(in_flight) / LOAD.pages_per_s(LOAD.slots)

    async def follow(self, card: Card) -> None:
        """Be as slow as its clock makes it, and answer nothing without it."""
        page_ms = _HUNG_MS if card.lost else _PAGE_MS / LOAD.speed(card.clock)
        if abs(page_ms / self._page_ms - 1) > _NOTICED:
            self._page_ms = page_ms
            await self._ask("PUT", f"/latency-ms/{page_ms:.1f}")

    def close(self) -> None:
        self._writer.close()


@dataclass(eq=False)
class Played:
    """One service with all that is before and behind it. Callers add to `answered` what was
    answered in time; `control` is the service's control socket."""

    wave: Wave
    card: Card
    says: fake_card.Card
    server: Server
    control: Path
    engine_url: str
    answered: int = 0
    _seconds: list[Second] = field(default_factory=list)
    _shutdowns: int = 0
    _above_s: float = 0.0

    @property
    def port(self) -> int:
        return _port(self.server.url)

    async def play(self, from_s: float, on_second: Callable[[Second], None]) -> Run:
        """From `from_s` of the wave until its end; `on_second` hears of each second."""
        loop = asyncio.get_running_loop()
        zero_s, zero_unix_s = loop.time() - from_s, time.time() - from_s
        at, answered = from_s, self.answered
        link = await asyncio.open_connection("127.0.0.1", _port(self.engine_url))
        with closing(_Engine(*link)) as engine:
            while at < self.wave.until_s:
                await asyncio.sleep(_STEP_S)
                before, at = at, loop.time() - zero_s
                self._advance(before, at, await engine.work())
                await engine.follow(self.card)
                speak(self.says, self.card)
                if at >= from_s + len(self._seconds) + 1:
                    before_answered, answered = answered, self.answered
                    self._seconds.append(await self._seen(at, answered - before_answered))
                    on_second(self._seconds[-1])
        return Run(self.wave, self._seconds, self._transitions(zero_unix_s), self._shutdowns)

    def _advance(self, at: float, until: float, work: float) -> None:
        """By steps of no more than `_STEP_S`, however late the loop was."""
        card, wave = self.card, self.wave
        while (step_s := min(_STEP_S, until - at)) > 0:
            was_lost = card.lost
            card.advance(step_s, work, inlet_c=wave.inlet_c(at), airflow=wave.airflow(at))
            self._above_s += step_s * (card.die_c >= card.parameters.slowdown_c)
            self._shutdowns += card.lost and not was_lost
            at += step_s

    async def _seen(self, at: float, answered: int) -> Second:
        card, above_s, self._above_s = self.card, self._above_s, 0.0
        said = await asyncio.to_thread(control.breaker, self.control, "status")
        return Second(
            at, card.die_c, card.clock, said["limit_factor"], State(said["state"]),
            answered, above_s, card.sample(),
        )  # fmt: skip

    def _transitions(self, zero_unix_s: float) -> Sequence[Transition]:
        """As the service's log has them."""
        return [
            Transition(
                State(line["from"]), State(line["to"]), Reason(line["reason"]),
                _unix_s(line["time"]) - zero_unix_s, line["why"],
            )
            for line in self.server.log_lines()
            if line["message"] == "breaker" and line["from"] != line["to"]
        ]  # fmt: skip


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


def _unix_s(utc: str) -> float:
    return datetime.fromisoformat(utc).replace(tzinfo=UTC).timestamp()


def speak(says: fake_card.Card, card: Card) -> None:
    """Let NVML answer as `card` is now."""
    sample = card.sample()
    changes: Mapping[str, object] = {
        "temperature": sample.temperature_c,
        "margin": sample.margin_c,
        "reasons": sum(_BITS[name] for name in sample.reasons),
        "throttled_software_thermal": sample.throttled_ns,
        "throttled_hardware_thermal": 0,
        "sm_clock": round(sample.sm_clock_mhz or 0),
        "power": round((sample.power_w or 0) * 1e3),
    }
    calls = ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetCurrentClocksEventReasons")
    lost = {f"error.{call}": _GPU_LOST for call in calls} if card.lost else {}
    says(**changes, **lost)


def warm(wave: Wave, until_s: float, seed: int) -> Card:
    """A card after `until_s` of the wave at full work, in virtual time."""
    card = Card(CardParameters(), wave.inlet_c(0.0), Random(seed))
    for step in range(round(until_s / _STEP_S)):
        at = step * _STEP_S
        card.advance(_STEP_S, 1.0, inlet_c=wave.inlet_c(at), airflow=wave.airflow(at))
    return card


@contextmanager
def _probe(library: str, script: Path, file: Path) -> Iterator[None]:
    command = [sys.executable, "-I", probe.__file__, "--library", library, "--file", str(file)]
    environment = {k: v for k, v in os.environ.items() if k not in probe.NAMED_BY}
    environment["FAKE_NVML"] = str(script)
    with (
        file.with_suffix(".log").open("wb") as log,
        subprocess.Popen([*command, "--period-s", "1"], env=environment, stderr=log) as process,
    ):
        try:
            yield
        finally:
            process.kill()


@contextmanager
def played(
    folder: Path, library: str, wave: Wave, card: Card, *, guarded: bool, deadline_s: float
) -> Iterator[Played]:
    """Start all of it, end all of it. Without `guarded` the service is told of no sensors, and
    finds nothing slow."""
    folder.mkdir()
    says, file = fake_card.Card(folder / "script"), folder / "gpu.json"
    speak(says, card)
    settings: dict[str, Any] = {
        "control_socket": folder / "control",
        "vllm_concurrency": LOAD.slots,
        "standard_timeout_s": deadline_s,
        "drain_propagation_s": 0,
    }
    if guarded:
        full_clock_mhz = RTX_4090_D.full_clock_mhz
        settings |= {"gpu_file": file, "gpu_full_clock_megahertz": full_clock_mhz}
    else:
        settings["breaker_slow_ratio"] = _NEVER_SLOW
    with ExitStack() as stack:
        stack.enter_context(_probe(library, says.script, file))
        law = ("--contention", f"{_CONTENTION:.5f}")
        engine = stack.enter_context(stand_in(folder, round(_PAGE_MS), *law))
        server = stack.enter_context(server_before(engine, folder, **settings))
        yield Played(wave, card, says, server, folder / "control", engine.url)
