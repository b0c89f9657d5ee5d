"""Engines started with one set of flags after another, and ended whole."""

from __future__ import annotations

import asyncio
import itertools
import os
import shlex
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

import aiohttp

from loadtest.step import Step

CARD = Path(__file__).with_name("card")
_CHUNKED = {"on": "--enable-chunked-prefill", "off": "--no-enable-chunked-prefill"}
_OUT_OF_MEMORY = ("out of memory", "OutOfMemoryError")
_STOP_S = 30.0
_GONE_S = 5.0
_POLL_S = 0.5
_LOG_END_BYTES = 200_000


class CommandUnusable(Exception):
    """The template cannot start the engines asked for; the message is for people."""


class StartFailed(Exception):
    """An engine ended before it answered, or never did."""


class Ended(Exception):
    """An engine that had answered ended by itself."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One engine's settings, as the command's placeholders have them."""

    max_num_seqs: int
    gpu_memory_utilization: float
    chunked_prefill: str
    max_pixels: int

    def placeholders(self, port: int) -> dict[str, str]:
        return {
            "max_num_seqs": str(self.max_num_seqs),
            "gpu_memory_utilization": f"{self.gpu_memory_utilization:g}",
            "chunked_prefill": _CHUNKED[self.chunked_prefill],
            "max_pixels": str(self.max_pixels),
            "port": str(port),
        }


@dataclass(frozen=True, slots=True)
class Outing:
    """One run of one engine. `step` None: it had no load; `why`: how it ended by itself."""

    cell: Cell
    started_after_s: float
    step: Step | None
    out_of_memory: bool
    why: str = ""


def grid(
    max_num_seqs: Sequence[int],
    gpu_memory_utilization: Sequence[float],
    chunked_prefill: Sequence[str],
    max_pixels: Sequence[int],
) -> list[Cell]:
    """Every combination. Raises CommandUnusable for a chunked prefill other than on and off."""
    if unknown := set(chunked_prefill) - _CHUNKED.keys():
        raise CommandUnusable(f"chunked prefill is on or off, not {min(unknown)}")
    combined = itertools.product(max_num_seqs, gpu_memory_utilization, chunked_prefill, max_pixels)
    return [Cell(*settings) for settings in combined]


def check(template: str, cells: Sequence[Cell]) -> None:
    """Raises CommandUnusable where the command leaves out what is varied, or the port."""
    used = set(Template(template).get_identifiers())
    known = cells[0].placeholders(0).keys()
    if not Template(template).is_valid():
        raise CommandUnusable("a $ in the command begins no placeholder: write $$ for a dollar")
    if unknown := used - known:
        raise CommandUnusable(f"${min(unknown)} is none of ${', $'.join(known)}")
    varied = {name for name in known if len({c.placeholders(0)[name] for c in cells}) > 1}
    if missing := (varied | {"port"}) - used:
        raise CommandUnusable(f"the command does not say ${min(missing)}")


def command(template: str, cell: Cell, port: int) -> list[str]:
    """The words of the command. `check` comes before."""
    values = cell.placeholders(port)
    return [Template(word).substitute(values) for word in shlex.split(template)]


def environment(card_gb: float | None, inherited: Mapping[str, str]) -> dict[str, str]:
    """Of the engine: with `card_gb` it sees a card of so many gigabytes."""
    if card_gb is None:
        return dict(inherited)
    path = os.pathsep.join(filter(None, (str(CARD), inherited.get("PYTHONPATH"))))
    return {**inherited, "PYTHONPATH": path, "LOADTEST_CARD_GB": f"{card_gb:g}"}


@asynccontextmanager
async def running(
    words: Sequence[str], variables: Mapping[str, str], log: Path, url: str, start_timeout_s: float
) -> AsyncIterator[float]:
    """An engine that answers /health; yields the seconds that took. Nothing of it is left behind.

    Raises StartFailed, also where something else answers there, and Ended when it has not lived
    to the end.
    """
    if await _accepts(url):
        raise StartFailed(f"something answers at {url} already: end it, or choose another --port")
    with log.open("wb") as out:
        try:
            process = await asyncio.create_subprocess_exec(
                *words, env=variables, stdout=out, stderr=out, start_new_session=True
            )
        except OSError as error:
            raise StartFailed(f"{words[0]}: {error.strerror}") from None
    began = time.monotonic()
    try:
        await _healthy(process, f"{url}/health", start_timeout_s)
        yield time.monotonic() - began
        if process.returncode is not None:
            raise Ended(f"ended with {process.returncode} under its load")
    finally:
        await _stop(process)


async def _accepts(url: str) -> bool:
    parts = urlsplit(url)
    try:
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return False
    writer.close()
    return True


async def _healthy(process: asyncio.subprocess.Process, url: str, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s), aiohttp.ClientSession() as http:
            while process.returncode is None:
                with suppress(aiohttp.ClientError, OSError):
                    async with http.get(url) as response:
                        if response.status == 200:
                            return
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise StartFailed(f"no answer at /health within {timeout_s:g} s") from None
    raise StartFailed(f"ended with {process.returncode}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    """The whole group: an engine's workers outlive its first process."""
    for number, patience_s in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, _STOP_S)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), patience_s)
    # GPU memory comes back when the last is gone; what nobody reaps is gone, and stays listed.
    for _ in range(round(_GONE_S / _POLL_S)):
        if not _group_lives(process.pid):
            return
        await asyncio.sleep(_POLL_S)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def ran_out_of_memory(log: Path) -> bool:
    """Whether the end of an engine's log says so."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_END_BYTES))
        text = file.read().decode(errors="replace")
    return any(sign in text for sign in _OUT_OF_MEMORY)
