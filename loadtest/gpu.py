"""What the GPU's sensors said during a step: from the sidecar's metrics, or from nvidia-smi."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

INTERVAL_S = 1.0
_PREFIX = "hunyuan_ocr_gpu_"
_METRICS = {
    "temperature_celsius": "temperature_c",
    "memory_used_bytes": "memory_used_gb",
    "utilization_ratio": "utilization",
    "power_watts": "power_w",
}
_QUERY = "temperature.gpu,memory.used,utilization.gpu,power.draw"
_SMI_FACTORS = {
    "temperature_c": 1.0, "memory_used_gb": 1.048576e-3, "utilization": 0.01, "power_w": 1.0,
}  # fmt: skip

Sensors = dict[str, float]


class Source(Protocol):
    def readings(self) -> AsyncIterator[Sensors]:
        """What sensors say, about once a second, without end; an empty reading where they are
        silent."""


@dataclass(slots=True)
class Watch:
    """Readings of the step that runs."""

    readings: list[Sensors] = field(default_factory=list)

    def begin(self) -> None:
        self.readings.clear()

    def highest(self) -> Sensors:
        """Of each sensor the highest value since `begin`; of utilization the mean."""
        names = sorted({name for reading in self.readings for name in reading})
        found = {}
        for name in names:
            values = [reading[name] for reading in self.readings if name in reading]
            found[name] = sum(values) / len(values) if name == "utilization" else max(values)
        return found


@asynccontextmanager
async def watching(source: Source | None) -> AsyncIterator[Watch]:
    """Read the sensors in the background; without a source there are no readings."""
    watch = Watch()

    async def read() -> None:
        if source is not None:
            async for reading in source.readings():
                watch.readings.append(reading)

    reader = asyncio.ensure_future(read())
    try:
        yield watch
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


def parse_metrics(text: str) -> Sensors:
    """The card's sensors in a sidecar's /metrics; those it does not know are left out."""
    found = {}
    for family in text_string_to_metric_families(text):
        name = _METRICS.get(family.name.removeprefix(_PREFIX))
        if name and family.name.startswith(_PREFIX):
            for sample in family.samples:
                if math.isfinite(sample.value):
                    found[name] = sample.value / (1e9 if name == "memory_used_gb" else 1)
    return found


def parse_smi(line: str) -> Sensors:
    """One line of nvidia-smi's CSV; what a card does not tell is left out."""
    found = {}
    for (name, factor), value in zip(_SMI_FACTORS.items(), line.split(","), strict=False):
        try:
            found[name] = float(value) * factor
        except ValueError:
            continue
    return found


class SidecarMetrics:
    """`url`: the management port's /metrics."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def readings(self) -> AsyncIterator[Sensors]:
        timeout = aiohttp.ClientTimeout(total=2 * INTERVAL_S)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            while True:
                yield await self._read(http)
                await asyncio.sleep(INTERVAL_S)

    async def _read(self, http: aiohttp.ClientSession) -> Sensors:
        try:
            async with http.get(self._url) as response:
                return parse_metrics(await response.text()) if response.status == 200 else {}
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return {}


class NvidiaSmi:
    """The first card of this machine; no readings where there is no nvidia-smi."""

    async def readings(self) -> AsyncIterator[Sensors]:
        program = shutil.which("nvidia-smi")
        if program is None:
            return
        process = await asyncio.create_subprocess_exec(
            program, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits", "--loop=1", "--id=0",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None  # noqa: S101
        try:
            async for line in process.stdout:
                yield parse_smi(line.decode())
        finally:
            process.kill()
            await process.wait()
