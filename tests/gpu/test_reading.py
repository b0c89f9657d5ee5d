"""What the service makes of the probe's file, whatever is in it."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hunyuan_ocr.gpu.reading import SensorState, parse, read
from tests.gpu.conftest import Card, running

NOW_S = 1000.0
CARD: dict[str, Any] = {
    "index": 0,
    "uuid": "GPU-a",
    "name": "NVIDIA GeForce RTX 4090 D",
    "temperature_c": 60,
    "margin_c": 22,
    "slowdown_in_c": 24,
    "reasons": 0x5,
    "software_thermal_throttled_ns": 3,
    "hardware_thermal_throttled_ns": 4,
    "utilisation_gpu_percent": 50,
    "memory_used_bytes": 1 << 30,
    "memory_total_bytes": 24 << 30,
    "power_w": 300.5,
    "sm_clock_mhz": 2520,
}


def written(*devices: dict[str, Any], **changes: object) -> bytes:
    report = {
        "sequence": 7,
        "written_boottime_s": NOW_S - 0.2,
        "sampled_boottime_s": NOW_S - 0.5,
        "driver": "580.159.04",
        "devices": list(devices),
        "state": "ok",
        "detail": "the sensors answer",
    }
    return json.dumps(report | changes).encode()


def test_one_card() -> None:
    reading = parse(written(CARD), NOW_S)
    assert (reading.state, reading.age_s, reading.driver) == (SensorState.OK, 0.5, "580.159.04")
    assert reading.temperature_c == 60
    assert reading.margin_c == 22
    assert reading.slowdown_in_c == 24
    assert reading.reasons == {"power_cap"}
    assert reading.throttled_ns == 7
    assert reading.utilisation == 0.5
    assert reading.memory_used_bytes == 1 << 30
    assert reading.memory_total_bytes == 24 << 30
    assert reading.power_w == 300.5
    assert reading.sm_clock_mhz == 2520
    assert [device.uuid for device in reading.devices] == ["GPU-a"]


@pytest.mark.parametrize(
    ("mask", "reasons"),
    [
        (0x0, set()),
        (0x1, set()),  # idle
        (0x4, {"power_cap"}),
        (0x8, {"hardware_slowdown"}),
        (0x20, {"software_thermal"}),
        (0x68, {"software_thermal", "hardware_thermal", "hardware_slowdown"}),
        (0x80, {"power_brake"}),
        (None, set()),
    ],
)
def test_reasons(mask: int | None, reasons: set[str]) -> None:
    assert parse(written(CARD | {"reasons": mask}), NOW_S).reasons == reasons


def test_several_cards_are_as_bad_as_the_worst_of_them() -> None:
    hot = CARD | {"uuid": "GPU-b", "temperature_c": 80, "margin_c": 2, "slowdown_in_c": 4}
    throttled = CARD | {"uuid": "GPU-c", "reasons": 0x40, "sm_clock_mhz": 1200}
    blind = {"uuid": "GPU-d", "temperature_c": None}
    reading = parse(written(CARD, blind, hot, throttled), NOW_S)
    assert [device.uuid for device in reading.devices] == ["GPU-c", "GPU-b", "GPU-a", "GPU-d"]
    assert (reading.temperature_c, reading.margin_c, reading.slowdown_in_c) == (80, 2, 4)
    assert reading.reasons == {"hardware_thermal", "power_cap"}
    assert (reading.throttled_ns, reading.sm_clock_mhz) == (21, 1200)
    assert (reading.power_w, reading.memory_used_bytes) == (901.5, 3 << 30)


def test_what_no_card_tells_is_none() -> None:
    reading = parse(written({}), NOW_S)
    assert reading.state == SensorState.OK
    assert reading.temperature_c is reading.slowdown_in_c is reading.throttled_ns is None


@pytest.mark.parametrize(
    ("sampled_s", "age_s"),
    [
        (NOW_S - 60, 60.0),
        (NOW_S + 0.5, 0.0),  # the clock's rounding
        (NOW_S + 60, math.inf),  # of a boot before
        (None, math.inf),  # never
        ("soon", math.inf),
    ],
)
def test_age_counts_from_the_sample(sampled_s: object, age_s: float) -> None:
    content = written(CARD, sampled_boottime_s=sampled_s, state="hung", detail="no answer")
    reading = parse(content, NOW_S)
    assert (reading.state, reading.age_s, reading.temperature_c) == ("hung", age_s, 60)


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "1e999", "true", '"60"', "[]", "{}", "null", "9" * 400, "9" * 5000]
)
def test_a_figure_that_is_none_is_no_figure(value: str) -> None:
    content = written(CARD | {"temperature_c": "HERE"}).replace(b'"HERE"', value.encode())
    assert parse(content, NOW_S).temperature_c is None


MALFORMED = [
    b"",
    b"{",
    b"[]",
    b"{}",
    b"\xff\xfe\x00",
    b"[" * 60_000,
    b'{"a":' * 10_000,
    written(CARD)[:-1],
    written(CARD, state="new"),
    written(CARD, state=[]),
    written(devices=3),
    written(devices=["text"]),
    written(CARD, detail="x" * 70_000),
]


@pytest.mark.parametrize("content", MALFORMED, ids=range(len(MALFORMED)))
def test_what_the_probe_did_not_write_is_malformed(content: bytes) -> None:
    reading = parse(content, NOW_S)
    assert (reading.state, reading.age_s) == (SensorState.MALFORMED, math.inf)
    assert reading.detail


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(sorted(CARD)), inner),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(
    st.binary()
    | values.map(lambda value: json.dumps(value).encode())
    | st.builds(written, values, driver=values, detail=values, sampled_boottime_s=values)
)
def test_nothing_raises_and_everything_can_be_told(content: bytes) -> None:
    reading = parse(content, NOW_S)
    assert reading.age_s >= 0
    for text in (reading.detail, reading.driver, *(device.name for device in reading.devices)):
        (text or "").encode()


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    path.write_bytes(written(CARD, sampled_boottime_s=now_s - 2))
    reading = read(path)
    assert 2 <= reading.age_s < 3
    assert reading.temperature_c == 60


@pytest.mark.parametrize("kind", ["nothing", "folder", "link", "pipe", "large"])
def test_what_is_no_plain_file_is_no_trap(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "gpu.json"
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    open_files = os.listdir("/proc/self/fd")
    reading = read(path)
    assert reading.state in {SensorState.NO_FILE, SensorState.MALFORMED}
    assert reading.age_s == math.inf
    assert os.listdir("/proc/self/fd") == open_files


def test_a_reading_is_as_old_as_the_last_sample_while_nvml_hangs(
    fake_library: str, card: Card, tmp_path: Path
) -> None:
    file = tmp_path / "gpu.json"
    with running(fake_library, file) as probe:
        probe.until_state("ok")
        assert read(file).slowdown_in_c == 44
        card(hang__nvmlDeviceGetFieldValues=-1)
        hung = probe.until_state("hung")
        probe.until(lambda report: bool(report["sequence"] > hung["sequence"] + 5))
        reading = read(file)
    assert (reading.state, reading.slowdown_in_c) == (SensorState.HUNG, 44)
    assert reading.age_s > 0.3


def test_an_h200_as_it_reported_itself() -> None:
    """At rest, under load, after the reader was killed, well again, and after the load."""
    path = Path(__file__).parent / "fixtures" / "h200.jsonl"
    lines = path.read_bytes().splitlines()
    rest, load, lost, again, after = (
        parse(line, json.loads(line)["written_boottime_s"]) for line in lines
    )
    assert [r.state for r in (rest, load, lost, again, after)] == [
        "ok", "ok", "driver_lost", "ok", "ok",
    ]  # fmt: skip
    assert (rest.temperature_c, rest.margin_c, rest.slowdown_in_c) == (36, 51, 53)
    assert (rest.reasons, rest.utilisation, rest.sm_clock_mhz) == (frozenset(), 0.0, 345)
    assert load.slowdown_in_c is not None
    assert 28 < load.slowdown_in_c < 34
    assert load.reasons == {"power_cap"}
    assert (load.utilisation, load.throttled_ns) == (1.0, 0)
    assert load.power_w is not None
    assert 650 < load.power_w < 720
    assert load.memory_used_bytes == 1_194_131_456
    assert lost.temperature_c == 58
    assert lost.age_s > 1
    assert again.age_s < 0.1
    assert after.reasons == set()
    assert rest.devices[0].name == "NVIDIA H200"
