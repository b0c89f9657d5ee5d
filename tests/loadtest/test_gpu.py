from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from hunyuan_ocr.gpu.reading import GpuReading, SensorState
from hunyuan_ocr.telemetry.gpu_metrics import GpuMetrics
from hunyuan_ocr.traffic.thermal import ThermalProfile
from loadtest.gpu import Sensors, parse_metrics, parse_smi, watching


def test_the_sidecars_metrics_are_understood() -> None:
    registry = CollectorRegistry()
    reading = GpuReading(
        age_s=1.0,
        state=SensorState.OK,
        detail="",
        temperature_c=71.0,
        memory_used_bytes=20_000_000_000,
        utilisation=0.5,
    )
    GpuMetrics(registry, ThermalProfile()).show(reading, 1.0, stale=False)
    assert parse_metrics(generate_latest(registry).decode()) == {
        "temperature_c": 71.0,
        "memory_used_gb": 20.0,
        "utilization": 0.5,
    }


def test_metrics_of_another_server_tell_nothing() -> None:
    assert parse_metrics("# TYPE up gauge\nup 1\n") == {}


def test_a_line_of_nvidia_smi() -> None:
    found = parse_smi("64, 20480, 93, [N/A]\n")
    assert found == {
        "temperature_c": 64.0,
        "memory_used_gb": pytest.approx(21.47, abs=0.01),
        "utilization": pytest.approx(0.93),
    }


class _Warming:
    async def readings(self) -> AsyncIterator[Sensors]:
        for temperature_c in (50.0, 60.0, 70.0):
            yield {"temperature_c": temperature_c, "utilization": temperature_c / 100}
            await asyncio.sleep(0)
        await asyncio.Event().wait()


async def test_a_step_has_the_highest_temperature_and_the_mean_use() -> None:
    async with watching(_Warming()) as watch:
        await asyncio.sleep(0.05)
        assert watch.highest() == {"temperature_c": 70.0, "utilization": pytest.approx(0.6)}
        watch.begin()
        assert watch.highest() == {}


async def test_without_sensors_nothing_is_told() -> None:
    async with watching(None) as watch:
        assert watch.highest() == {}
