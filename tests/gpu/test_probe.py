"""What the probe writes, whatever NVML does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.gpu.conftest import Card, Json, once, once_json, running


def test_what_a_card_says_is_written_down(fake_library: str, card: Card) -> None:
    report = once_json(fake_library)
    (device,) = report.pop("devices")
    assert device == {
        "index": 0,
        "uuid": "GPU-6a1f0000-0000-0000-0000-000000000000",
        "name": "NVIDIA GeForce RTX 4090 D",
        "mig": False,
        "temperature_c": 40,
        "margin_c": 42,
        "slowdown_in_c": 44,
        "shutdown_threshold_margin_c": -7,
        "slowdown_threshold_margin_c": -2,
        "memory_max_threshold_margin_c": None,
        "gpu_max_threshold_margin_c": 0,
        "shutdown_threshold_c": None,
        "slowdown_threshold_c": None,
        "memory_max_threshold_c": None,
        "gpu_max_threshold_c": None,
        "reasons": 0,
        "software_thermal_throttled_ns": 3_000_000_000,
        "hardware_thermal_throttled_ns": 500_000_000,
        "power_brake_throttled_ns": 70_000_000,
        "utilisation_gpu_percent": 50,
        "utilisation_memory_percent": 20,
        "memory_used_bytes": 1_000_000_000,
        "memory_total_bytes": 25_757_220_864,
        "power_w": 77.526,
        "power_limit_w": 425.0,
        "sm_clock_mhz": 2520,
        "max_sm_clock_mhz": 3105,
        "fan_percent": 30,
    }
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert now_s - 5 < report["sampled_boottime_s"] <= report["written_boottime_s"] <= now_s + 0.01
    assert (report["state"], report["driver"]) == ("ok", "580.159.04")


def test_an_older_driver_has_fewer_functions_and_absolute_thresholds(
    old_library: str, card: Card
) -> None:
    card(threshold_slowdown=90, threshold_shutdown=95, reasons=0x20)
    (device,) = once_json(old_library)["devices"]
    assert device["temperature_c"] == 40
    assert device["slowdown_in_c"] == 50
    assert (device["slowdown_threshold_c"], device["shutdown_threshold_c"]) == (90, 95)
    assert device["reasons"] == 0x20
    # Its only function counts what is reserved as used.
    assert device["memory_used_bytes"] == 1_400_000_000
    assert {name for name, value in device.items() if value is None} == {
        "margin_c",
        "shutdown_threshold_margin_c",
        "slowdown_threshold_margin_c",
        "memory_max_threshold_margin_c",
        "gpu_max_threshold_margin_c",
        "memory_max_threshold_c",
        "gpu_max_threshold_c",
        "software_thermal_throttled_ns",
        "hardware_thermal_throttled_ns",
        "power_brake_throttled_ns",
    }


@pytest.mark.parametrize("degrees", [0, 150, 255, 0xFFFFFFFF, None])
def test_a_temperature_that_cannot_be_is_none(
    fake_library: str, card: Card, degrees: int | None
) -> None:
    card(temperature=degrees)
    (device,) = once_json(fake_library)["devices"]
    assert device["temperature_c"] is None
    assert device["margin_c"] == 42


@pytest.mark.parametrize(
    ("line", "value", "field"),
    [
        ("margin", 255, "margin_c"),
        ("margin_slowdown", 255, "slowdown_threshold_margin_c"),
        ("utilisation_gpu", 255, "utilisation_gpu_percent"),
        ("memory_total", 0, "memory_total_bytes"),
        ("power", 0xFFFFFFFF, "power_w"),
        ("sm_clock", 0xFFFFFFFF, "sm_clock_mhz"),
        ("fan", None, "fan_percent"),
    ],
)
def test_another_value_that_cannot_be_is_none_too(
    fake_library: str, card: Card, line: str, value: int | None, field: str
) -> None:
    card(**{line: value})
    (device,) = once_json(fake_library)["devices"]
    assert device[field] is None
    assert device["temperature_c"] == 40


def test_a_spike_is_written_as_it_is(fake_library: str, card: Card, tmp_path: Path) -> None:
    card(temperature="60 60 60 60 93 61")
    seen: list[int] = []

    def over(report: Json) -> bool:
        seen.extend(device["temperature_c"] for device in report["devices"])
        return 61 in seen

    with running(fake_library, tmp_path / "gpu.json", period_s=0.1) as probe:
        probe.until(over)
    assert 93 in seen


def test_the_file_is_whole_at_any_time(library: str, tmp_path: Path) -> None:
    with running(library, tmp_path / "gpu.json", period_s=0.002) as probe:
        probe.until_state("ok")
        end_s, sequences = time.monotonic() + 1.5, []
        while time.monotonic() < end_s:
            sequences.append(probe.report()["sequence"])
    assert sequences == sorted(sequences)
    assert len(set(sequences)) > 50
    assert {path.name for path in tmp_path.iterdir()} <= {"gpu.json", "gpu.json.new", "script"}


def test_a_call_that_hangs_is_told_and_its_return_too(
    fake_library: str, card: Card, tmp_path: Path
) -> None:
    with running(fake_library, tmp_path / "gpu.json") as probe:
        probe.until_state("ok")
        readers = probe.readers()
        card(hang__nvmlDeviceGetPowerUsage=0.6)
        hung = probe.until_state("hung")
        later = probe.until(lambda report: bool(report["sequence"] > hung["sequence"]))
        assert later["sampled_boottime_s"] == hung["sampled_boottime_s"]
        assert later["written_boottime_s"] > hung["written_boottime_s"]
        assert later["devices"][0]["temperature_c"] == 40
        card(temperature=50)
        assert probe.until_state("ok")["devices"]
        assert probe.readers() == readers


def test_a_call_that_hangs_for_ever_is_given_up(
    fake_library: str, card: Card, tmp_path: Path
) -> None:
    with running(fake_library, tmp_path / "gpu.json") as probe:
        card(hang__nvmlDeviceGetFieldValues=-1)
        probe.until_state("hung")
        first = probe.readers()
        probe.until(lambda _: probe.readers() not in ([], first))
        card()
        probe.until_state("ok")
        assert len(probe.readers()) == 1


def test_a_reader_that_does_not_die_is_left_alone(
    fake_library: str, card: Card, tmp_path: Path
) -> None:
    """As one that hangs in the kernel: no signal reaches it until the call returns."""
    in_the_kernel = "subprocess.Popen.kill = lambda reader: None"
    with running(fake_library, tmp_path / "gpu.json", more=in_the_kernel) as probe:
        probe.until_state("ok")
        readers = probe.readers()
        card(hang__nvmlDeviceGetFieldValues=3)
        hung = probe.until_state("hung")
        probe.until(lambda r: bool(r["written_boottime_s"] > hung["written_boottime_s"] + 1.5))
        assert (probe.report()["state"], probe.readers()) == ("hung", readers)
        card()
        probe.until_state("ok")


@pytest.mark.parametrize("code", [1, 9, 15])
def test_a_lost_driver_is_told_and_met_anew(
    fake_library: str, card: Card, tmp_path: Path, code: int
) -> None:
    with running(fake_library, tmp_path / "gpu.json") as probe:
        before = probe.until_state("ok")
        card(error__nvmlDeviceGetTemperatureV=code)
        lost = probe.until_state("driver_lost")
        assert "nvmlDeviceGetTemperatureV" in lost["detail"]
        assert lost["sampled_boottime_s"] >= before["sampled_boottime_s"]
        assert lost["devices"] == before["devices"]
        card(temperature=51, error__nvmlInit_v2=9)
        probe.until(lambda report: "nvmlInit_v2" in report["detail"])
        card(temperature=51)
        assert probe.until_state("ok")["devices"][0]["temperature_c"] == 51


def test_a_crash_inside_the_library_is_told_and_met_anew(library: str, tmp_path: Path) -> None:
    with running(library, tmp_path / "gpu.json") as probe:
        probe.until_state("ok")
        os.kill(probe.readers()[0], signal.SIGSEGV)
        probe.until_state("driver_lost")
        probe.until_state("ok")


@pytest.mark.parametrize("hangs", [False, True])
def test_no_reader_outlives_a_probe_that_is_killed(
    fake_library: str, card: Card, tmp_path: Path, hangs: bool
) -> None:
    with running(fake_library, tmp_path / "gpu.json") as probe:
        probe.until_state("ok")
        if hangs:
            card(hang__nvmlDeviceGetFieldValues=-1)
            probe.until_state("hung")
        (reader,) = probe.readers()
        probe.process.kill()
        probe.process.wait(5)
        end_s = time.monotonic() + 5
        while Path(f"/proc/{reader}/exe").exists() and time.monotonic() < end_s:
            time.sleep(0.01)
        assert not Path(f"/proc/{reader}/exe").exists()


THREE: dict[str, object] = {
    "devices": 3,
    "uuid__0": "GPU-aaaa1111",
    "uuid__1": "GPU-bbbb2222",
    "uuid__2": "GPU-cccc3333",
}


@pytest.mark.parametrize(
    ("env", "indices"),
    [
        ({}, [0, 1, 2]),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, [0, 1, 2]),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-bbbb2222"}, [1]),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-cccc3333,GPU-aaaa1111"}, [0, 2]),
        ({"NVIDIA_VISIBLE_DEVICES": "2"}, [2]),
        # Seven of eight are hidden: the machine's numbers are not those seen here.
        ({"NVIDIA_VISIBLE_DEVICES": "5,6,7"}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "1,2"}, [1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-cccc"}, [2]),
        (
            {
                "NVIDIA_VISIBLE_DEVICES": "GPU-bbbb2222,GPU-cccc3333",
                "CUDA_VISIBLE_DEVICES": "1",
            },
            [2],
        ),
        ({"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"}, [0, 1, 2]),
    ],
)
def test_the_cards_are_those_of_this_container(
    fake_library: str, card: Card, env: dict[str, str], indices: list[int]
) -> None:
    card(**THREE)
    report = once_json(fake_library, **env)
    assert [device["index"] for device in report["devices"]] == indices


def test_a_card_that_is_not_there_is_named(fake_library: str, card: Card) -> None:
    status, out = once("--library", fake_library, NVIDIA_VISIBLE_DEVICES="GPU-elsewhere")
    assert (status, "GPU-elsewhere" in out, "no_device" in out) == (3, True, True)
    card(devices=0)
    assert once_json(fake_library)["state"] == "no_device"


def test_mig_is_said_plainly(fake_library: str, card: Card) -> None:
    card(mig__1=1, utilisation_gpu__1=None, utilisation_memory__1=None, **THREE | {"devices": 2})
    status, out = once("--library", fake_library, NVIDIA_VISIBLE_DEVICES="MIG-00000000")
    assert status == 0
    assert "GPU 1" in out
    assert "GPU 0" not in out
    assert "the whole card's" in out


def test_of_several_cards_with_mig_the_one_that_is_named_is_meant(
    fake_library: str, card: Card
) -> None:
    card(mig__0=1, mig__1=1, **THREE)
    report = once_json(fake_library, CUDA_VISIBLE_DEVICES="MIG-GPU-bbbb2222/1/0")
    assert [device["index"] for device in report["devices"]] == [1]


def test_words_say_what_lowers_the_clocks_and_what_is_unknown(
    fake_library: str, card: Card
) -> None:
    card(reasons=0x24, fan=None)
    status, out = once("--library", fake_library)
    assert status == 0
    assert "clocks lowered by: power_cap, software_thermal" in out
    assert "temperature: 40 °C" in out
    assert "left before the hardware slows down: 44 °C" in out
    unknown = next(line for line in out.splitlines() if "not known to NVML" in line)
    assert "fan_percent" in unknown


def test_without_a_library_it_says_so(tmp_path: Path) -> None:
    missing = str(tmp_path / "libnvidia-ml.so.1")
    status, out = once("--library", missing)
    assert (status, missing in out, out.startswith("no_library: ")) == (3, True, True)
    with running(missing, tmp_path / "gpu.json") as probe:
        report = probe.until_state("no_library")
        assert (report["devices"], report["sampled_boottime_s"]) == ([], None)


def test_a_driver_that_hangs_is_no_missing_gpu(fake_library: str, card: Card) -> None:
    card(hang__nvmlInit_v2=-1)
    assert once_json(fake_library)["state"] == "hung"


def test_a_driver_that_wakes_slowly_is_waited_for(fake_library: str, card: Card) -> None:
    card(hang__nvmlInit_v2=1.2)
    assert once_json(fake_library)["state"] == "ok"


def test_a_volume_that_comes_late_is_written_to(
    fake_library: str, card: Card, tmp_path: Path
) -> None:
    with running(fake_library, tmp_path / "telemetry" / "gpu.json") as probe:
        assert probe.process.stderr is not None
        assert "cannot write" in probe.process.stderr.readline()
        (tmp_path / "telemetry").mkdir()
        probe.until_state("ok")


def resources(pid: int) -> tuple[int, int]:
    """Resident KiB, and files that stay open: the least of some looks, as one is written now."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]), min(len(os.listdir(f"/proc/{pid}/fd")) for _ in range(100))


def test_thousands_of_samples_cost_no_memory_and_no_files(library: str, tmp_path: Path) -> None:
    with running(library, tmp_path / "gpu.json", period_s=0.001) as probe:
        begun = probe.until(lambda report: bool(report["sequence"] >= 500), within_s=30)
        pids = [probe.process.pid, *probe.readers()]
        before = [resources(pid) for pid in pids]
        probe.until(lambda r: bool(r["sequence"] >= begun["sequence"] + 2000), within_s=60)
        after = [resources(pid) for pid in pids]
    assert len(pids) == 2
    for (kib_before, files_before), (kib_after, files_after) in zip(before, after, strict=True):
        assert kib_after - kib_before < 512
        assert files_after == files_before


def test_the_command_line_has_it_too(fake_library: str, card: Card) -> None:
    hunyuan_ocr = Path(sys.executable).with_name("hunyuan-ocr")

    def said(*options: str) -> str:
        return subprocess.run(
            [hunyuan_ocr, "probe", *options], capture_output=True, text=True, check=True
        ).stdout

    assert json.loads(said("--once", "--json", "--library", fake_library))["state"] == "ok"
    assert "hunyuan-ocr probe --once" in said("--help")
