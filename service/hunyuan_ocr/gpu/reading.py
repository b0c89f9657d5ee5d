"""Reads what the probe wrote. Nothing raises: what cannot be read is a reading that says so."""

from __future__ import annotations

import json
import math
import os
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from hunyuan_ocr.gpu.probe import REASONS

N = TypeVar("N", int, float)

# Sixteen cards take some 15 kB.
_MOST_BYTES = 65_536


class SensorState(StrEnum):
    """What the probe says, and two words for a probe that says nothing."""

    OK = "ok"
    NO_LIBRARY = "no_library"
    NO_DEVICE = "no_device"
    DRIVER_LOST = "driver_lost"
    HUNG = "hung"
    NO_FILE = "no_file"
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensors:
    """Of one card, or of several together; None is what the driver does not tell.

    `slowdown_in_c`: degrees left until the hardware slows down. `margin_c`: degrees left until the
    highest temperature that the card is meant to work at, where software already throttles.
    `throttled_ns`: time throttled for heat since the driver was loaded. `utilisation`: 0 to 1.
    """

    temperature_c: float | None = None
    slowdown_in_c: float | None = None
    margin_c: float | None = None
    reasons: frozenset[str] = frozenset()
    throttled_ns: int | None = None
    utilisation: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    sm_clock_mhz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDevice(Sensors):
    """One card."""

    index: int | None
    uuid: str | None
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading(Sensors):
    """The cards of a pod as one, since a step of all is as slow as that of the slowest.

    Of each figure the worst: the hottest, the nearest to its threshold, the lowest clock; all
    reasons; memory, power and throttled time are added up. `age_s` counts from the sample, however
    often the file was rewritten since; it is infinite where there never was one, or where it is of
    another boot of the machine. Where `state` is not OK, the figures are those of the last sample.
    """

    age_s: float
    state: SensorState
    detail: str
    driver: str | None = None
    # The worst first.
    devices: tuple[GpuDevice, ...] = field(default=())


def read(path: Path) -> GpuReading:
    """Read the probe's file."""
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    try:
        return parse(_content(path), now_s)
    except OSError as error:
        return _without(SensorState.NO_FILE, f"{path}: {error.strerror}")


def _content(path: Path) -> bytes:
    """Raises OSError. The folder belongs to another container: a pipe or a link would be a trap."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return os.read(descriptor, _MOST_BYTES + 1)
    finally:
        os.close(descriptor)


def parse(content: bytes, now_s: float) -> GpuReading:
    """Read the content of the probe's file at `now_s` of CLOCK_BOOTTIME."""
    if len(content) > _MOST_BYTES:
        return _without(SensorState.MALFORMED, f"more than {_MOST_BYTES} bytes")
    try:
        report = json.loads(content)
        state = SensorState(report["state"])
        devices = [_device(entry) for entry in report["devices"]]
        sampled_s = _number(report["sampled_boottime_s"])
        detail = _text(report["detail"]) or ""
        driver = _text(report.get("driver"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return _without(SensorState.MALFORMED, f"not what the probe writes: {error!r}"[:500])
    # A second for the clock's rounding; more is a stamp of another boot.
    if sampled_s is None or sampled_s > now_s + 1:
        sampled_s = -math.inf
    return GpuReading(
        age_s=max(0.0, now_s - sampled_s),
        state=state,
        detail=detail,
        driver=driver,
        devices=tuple(sorted(devices, key=_how_cool)),
        temperature_c=_of(max, (d.temperature_c for d in devices)),
        slowdown_in_c=_of(min, (d.slowdown_in_c for d in devices)),
        margin_c=_of(min, (d.margin_c for d in devices)),
        reasons=frozenset().union(*(d.reasons for d in devices)),
        throttled_ns=_of(sum, (d.throttled_ns for d in devices)),
        utilisation=_of(max, (d.utilisation for d in devices)),
        memory_used_bytes=_of(sum, (d.memory_used_bytes for d in devices)),
        memory_total_bytes=_of(sum, (d.memory_total_bytes for d in devices)),
        power_w=_of(sum, (d.power_w for d in devices)),
        sm_clock_mhz=_of(min, (d.sm_clock_mhz for d in devices)),
    )


def _without(state: SensorState, detail: str) -> GpuReading:
    return GpuReading(age_s=math.inf, state=state, detail=detail)


def _device(entry: dict[str, Any]) -> GpuDevice:
    """Raises AttributeError where it is no object."""

    def number(name: str) -> float | None:
        return _number(entry.get(name))

    def whole(name: str) -> int | None:
        value = number(name)
        return None if value is None else int(value)

    mask = max(0, whole("reasons") or 0)
    percent = number("utilisation_gpu_percent")
    throttled = (whole(f"{cause}_thermal_throttled_ns") for cause in ("software", "hardware"))
    return GpuDevice(
        index=whole("index"),
        uuid=_text(entry.get("uuid")),
        name=_text(entry.get("name")),
        temperature_c=number("temperature_c"),
        slowdown_in_c=number("slowdown_in_c"),
        margin_c=number("margin_c"),
        reasons=frozenset(name for bit, name in REASONS.items() if mask & bit),
        throttled_ns=_of(sum, throttled),
        utilisation=None if percent is None else percent / 100,
        memory_used_bytes=whole("memory_used_bytes"),
        memory_total_bytes=whole("memory_total_bytes"),
        power_w=number("power_w"),
        sm_clock_mhz=number("sm_clock_mhz"),
    )


def _number(value: object) -> float | None:
    """A finite number; whole ones stay exact."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -1e18 < value < 1e19 else None


def _text(value: object) -> str | None:
    """Of bounded length, and such that it can be written: JSON may hold half characters."""
    if not isinstance(value, str):
        return None
    return value[:500].encode("utf-8", "replace").decode()


def _of(function: Callable[[list[N]], N], values: Iterable[N | None]) -> N | None:
    known = [value for value in values if value is not None]
    return function(known) if known else None


def _how_cool(device: GpuDevice) -> tuple[bool, float, float]:
    """Least for the worst: slowed by the hardware, near its threshold, hot."""
    left = math.inf if device.slowdown_in_c is None else device.slowdown_in_c
    return "hardware_thermal" not in device.reasons, left, -(device.temperature_c or 0.0)
