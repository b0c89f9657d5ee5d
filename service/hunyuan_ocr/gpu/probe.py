"""Writes down what the GPU's sensors say, once a second, for the service in the next container.

    python3 probe.py            rewrite /telemetry/gpu.json until killed
    python3 probe.py --once     say in words what the sensors say now, and end
    python3 probe.py --once --json

Ends with 0 where the sensors answer, 3 where there is no GPU (no library or no device), 4 where
there is one that does not answer (the driver is lost, or a call hangs).

Runs on vLLM's Python, so it is one file of the standard library. NVML is called in a process of
its own, the reader: a call may hang in the kernel, where no signal reaches it, and only a process
can be given up. The driver's return, a crash of its library and a hang have one cure, a new reader.
There is never a second one beside one that does not die: it would hang at the same lock.

The cards are those that NVIDIA_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES name, by UUID or index.
A value that NVML does not have, or that cannot be, is null.

Times are of CLOCK_BOOTTIME: the containers of a pod share it, as they share the kernel, nobody
sets it, and it goes on while the machine sleeps.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from ctypes import c_int, c_longlong, c_uint, c_ulonglong
from pathlib import Path
from typing import Any

FILE = "/telemetry/gpu.json"
LIBRARY = "libnvidia-ml.so.1"
PERIOD_S = 1.0
HUNG_AFTER_S = 3.0
# Longer than the driver takes to wake a cold card: killing it then would begin that anew.
KILL_AFTER_S = 30.0
RETRY_AFTER_S = {"no_library": 60.0, "no_device": 10.0, "driver_lost": 2.0, "hung": 2.0}
EXIT_CODES = {"ok": 0, "no_library": 3, "no_device": 3, "driver_lost": 4, "hung": 4}
NAMED_BY = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")

# Bits of `reasons` that say why clocks are lowered; the others are no fault.
REASONS = {
    0x04: "power_cap",
    0x08: "hardware_slowdown",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "power_brake",
}

Json = dict[str, Any]

# --- the reader: NVML, in a process of its own ----------------------------------------------------

# Uninitialised, driver not loaded, GPU lost, reset required, library and driver of two releases.
_LOST = {1, 9, 15, 16, 18}
_THRESHOLD_NAMES = ("shutdown", "slowdown", "memory_max", "gpu_max")
# By nvmlTemperatureThresholds_t, and the same by field, as margins (Ada and later).
_THRESHOLDS = {f"{name}_threshold_c": kind for kind, name in enumerate(_THRESHOLD_NAMES)}
_MARGINS = {f"{name}_threshold_margin_c": 193 + kind for kind, name in enumerate(_THRESHOLD_NAMES)}
_THROTTLED = {
    "software_thermal_throttled_ns": 269,
    "hardware_thermal_throttled_ns": 270,
    "power_brake_throttled_ns": 271,
}
# By nvmlValueType_t.
_FORMATS = ("d", "I", "Q", "Q", "q", "i", "H")


class NotOkError(Exception):
    """Nothing can be read: which state that is, and a sentence."""

    def __init__(self, state: str, detail: str) -> None:
        super().__init__(detail)
        self.state = state


def _structure(**fields: Any) -> Any:
    return type("Structure", (ctypes.Structure,), {"_fields_": tuple(fields.items())})


_Field = _structure(
    id=c_uint, scope=c_uint, timestamp_us=c_longlong, latency_us=c_longlong,
    type=c_uint, code=c_uint, value=c_ulonglong,
)  # fmt: skip
_Temperature = _structure(version=c_uint, sensor=c_uint, temperature=c_int)
_Margin = _structure(version=c_uint, margin=c_int)
_Memory = _structure(total=c_ulonglong, free=c_ulonglong, used=c_ulonglong)
_Memory2 = _structure(
    version=c_uint, total=c_ulonglong, reserved=c_ulonglong, free=c_ulonglong, used=c_ulonglong
)
_Utilisation = _structure(gpu=c_uint, memory=c_uint)


def _versioned(structure: Any, release: int) -> Any:
    """Blank, but for what NVML knows the layout by: its size and release."""
    return structure(version=ctypes.sizeof(structure) | release << 24)


class Nvml:
    """The library. What it lacks, or what does not work here, is None."""

    def __init__(self, path: str) -> None:
        try:
            self._library = ctypes.CDLL(path)
            self._library.nvmlErrorString.restype = ctypes.c_char_p
        except (OSError, AttributeError) as error:
            raise NotOkError("no_library", f"there is no NVML: {error}") from None
        self.need("nvmlInit_v2")

    def _call(self, name: str, *arguments: Any) -> tuple[bool, str]:
        function = getattr(self._library, name, None)
        if function is None:
            return False, f"{name} is missing"  # an older driver
        code = function(*arguments)
        problem = f"{name}: {self._library.nvmlErrorString(code).decode()}"
        if code in _LOST:
            raise NotOkError("driver_lost", problem)
        return code == 0, problem

    def need(self, name: str, *arguments: Any) -> None:
        done, problem = self._call(name, *arguments)
        if not done:
            raise NotOkError("driver_lost", problem)

    def fill(self, result: Any, name: str, *arguments: Any) -> Any:
        done, _ = self._call(name, *arguments, ctypes.byref(result))
        return result if done else None

    def number(self, name: str, *arguments: Any, kind: Any = c_uint) -> int | None:
        got = self.fill(kind(), name, *arguments)
        return None if got is None else _between(-1, got.value, 0xFFFFFFFF)

    def text(self, name: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(96)
        done, _ = self._call(name, *arguments, buffer, c_uint(len(buffer)))
        return buffer.value.decode("utf-8", "replace") if done else ""


def _between(low: int, value: int | None, high: int) -> int | None:
    return value if value is not None and low < value < high else None


def _margin(value: int | None) -> int | None:
    """Degrees, below 0 too where the driver calls them unsigned."""
    return _between(-100, None if value is None else c_int(value).value, 150)


class Device:
    """One card. What does not change is asked for once."""

    def __init__(self, nvml: Nvml, index: int) -> None:
        self._nvml, self._handle = nvml, ctypes.c_void_p()
        nvml.need("nvmlDeviceGetHandleByIndex_v2", c_uint(index), ctypes.byref(self._handle))
        self.uuid = nvml.text("nvmlDeviceGetUUID", self._handle)
        mode = c_uint()
        self.mig = self._number("MigMode", ctypes.byref(mode)) is not None and mode.value == 1
        self._constant: Json = {
            "index": index,
            "uuid": self.uuid or None,
            "name": nvml.text("nvmlDeviceGetName", self._handle) or None,
            "mig": self.mig,
            "max_sm_clock_mhz": self._number("MaxClockInfo", c_int(1)),
        }
        for name, kind in _THRESHOLDS.items():
            degrees = self._number("TemperatureThreshold", c_int(kind))
            self._constant[name] = _between(0, degrees, 150)

    def _fill(self, result: Any, name: str, *arguments: Any) -> Any:
        return self._nvml.fill(result, f"nvmlDeviceGet{name}", self._handle, *arguments)

    def _number(self, name: str, *arguments: Any, kind: Any = c_uint) -> int | None:
        return self._nvml.number(f"nvmlDeviceGet{name}", self._handle, *arguments, kind=kind)

    def _watts(self, name: str) -> float | None:
        milliwatts = _between(-1, self._number(name), 10_000_000)
        return None if milliwatts is None else milliwatts / 1000

    def _fields(self, names: dict[str, int]) -> dict[str, int | None]:
        fields = (_Field * len(names))(*(_Field(id=number) for number in names.values()))
        got = self._fill(fields, "FieldValues", c_int(len(names))) or ()
        values = {
            field.id: int(struct.unpack_from(_FORMATS[field.type], field, _Field.value.offset)[0])
            for field in got
            if field.code == 0 and field.type < len(_FORMATS)
        }
        return {name: values.get(number) for name, number in names.items()}

    def _thermal(self) -> Json:
        now = self._fill(_versioned(_Temperature, 1), "TemperatureV")  # the newer of two
        degrees = now.temperature if now else self._number("Temperature", c_int(0))
        temperature = _between(0, degrees, 150)
        left = self._fill(_versioned(_Margin, 1), "MarginTemperature")
        margin = _margin(left.margin) if left else None
        margins = {name: _margin(value) for name, value in self._fields(_MARGINS).items()}
        pairs = (
            (margin, margins["slowdown_threshold_margin_c"]),
            (self._constant["slowdown_threshold_c"], temperature),  # cards before Ada
        )
        differences = [a - b for a, b in pairs if a is not None and b is not None]
        return {
            "temperature_c": temperature,
            "margin_c": margin,
            "slowdown_in_c": differences[0] if differences else None,
            **margins,
        }

    def _memory(self) -> tuple[int, int] | tuple[None, None]:
        memory = self._fill(_versioned(_Memory2, 2), "MemoryInfo_v2")
        memory = memory or self._fill(_Memory(), "MemoryInfo")
        known = memory and 0 < memory.total < 1 << 60 and memory.used <= memory.total
        return (memory.used, memory.total) if known else (None, None)

    def read(self) -> Json:
        reasons = self._number("CurrentClocksEventReasons", kind=c_ulonglong)
        if reasons is None:
            reasons = self._number("CurrentClocksThrottleReasons", kind=c_ulonglong)
        throttled = self._fields(_THROTTLED).items()
        busy = self._fill(_Utilisation(), "UtilizationRates") or _Utilisation(255, 255)
        memory_used, memory_total = self._memory()
        return self._constant | self._thermal() | {
            "reasons": reasons,
            **{name: _between(-1, value, 1 << 62) for name, value in throttled},
            "utilisation_gpu_percent": _between(-1, busy.gpu, 101),
            "utilisation_memory_percent": _between(-1, busy.memory, 101),
            "memory_used_bytes": memory_used,
            "memory_total_bytes": memory_total,
            "power_w": self._watts("PowerUsage"),
            "power_limit_w": self._watts("EnforcedPowerLimit"),
            "sm_clock_mhz": self._number("ClockInfo", c_int(1)),
            "fan_percent": _between(-1, self._number("FanSpeed"), 201),
        }  # fmt: skip


def chosen(devices: list[Device]) -> list[Device]:
    """Those that are this container's. Raises NotOkError where there are none.

    The container toolkit counts the machine's cards, NVML those that the container sees: where
    these are as many as named, all are meant. CUDA counts as NVML does unless cards differ.
    """
    seen = len(devices)
    for variable in NAMED_BY:
        words = [word.strip() for word in os.environ.get(variable, "").split(",")]
        uuids = tuple(word for word in words if word.startswith("GPU-"))
        numbers = {int(word) for word in words if word.isdecimal()}
        if uuids:
            devices = [device for device in devices if device.uuid.startswith(uuids)]
        elif migs := [word.removeprefix("MIG-") for word in words if word.startswith("MIG-")]:
            devices = [device for device in devices if device.mig]
            # The older form is MIG-GPU-<uuid of the card>/<instance>/<instance>.
            cards = tuple(word.partition("/")[0] for word in migs if word.startswith("GPU-"))
            if cards:
                devices = [device for device in devices if device.uuid.startswith(cards)]
        elif numbers and len(devices) > len(numbers):
            devices = [device for index, device in enumerate(devices) if index in numbers]
    if not devices:
        named = ", ".join(f"{name}={os.environ[name]}" for name in NAMED_BY if name in os.environ)
        raise NotOkError("no_device", f"NVML sees {seen} devices; looked for {named or 'any'}")
    return devices


def read_forever(library: str, period_s: float) -> None:
    """One line of JSON a period, or one that says why not, and the end."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not to outlive its parent
    try:
        nvml = Nvml(library)
        count = c_uint()
        nvml.need("nvmlDeviceGetCount_v2", ctypes.byref(count))
        devices = chosen([Device(nvml, index) for index in range(count.value)])
        driver = nvml.text("nvmlSystemGetDriverVersion")
        while True:
            began_s = boottime_s()
            read = [device.read() for device in devices]
            _line({"sampled_boottime_s": began_s, "driver": driver, "devices": read})
            time.sleep(max(0.0, period_s - (boottime_s() - began_s)))
    except NotOkError as error:
        _line({"state": error.state, "detail": str(error)})


def _line(content: Json) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


# --- the watch: never calls NVML ------------------------------------------------------------------


def boottime_s() -> float:
    return round(time.clock_gettime(time.CLOCK_BOOTTIME), 3)


def start_reader(library: str, period_s: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", __file__, "--reader"]
    command += ["--library", library, "--period-s", str(period_s)]
    return subprocess.Popen(  # noqa: S603 - this very file
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )


def answers(reader: subprocess.Popen[bytes], period_s: float) -> Iterator[Json | None]:
    """What the reader says, None for each period without a word; ends with it."""
    assert reader.stdout is not None  # noqa: S101
    with reader.stdout as pipe:
        rest = b""
        while True:
            if not select.select([pipe], [], [], period_s)[0]:
                yield None
                continue
            if not (said := os.read(pipe.fileno(), 65536)):
                return
            *lines, rest = (rest + said).split(b"\n")
            yield from map(json.loads, lines)


def reports(library: str, period_s: float) -> Iterator[Json]:
    """What is to be written, about once a period; `devices` are those of the last sample."""
    report: Json = {"sampled_boottime_s": None, "driver": None, "devices": []}
    while True:
        reader, answered_s = start_reader(library, period_s), time.monotonic()
        crashed = {"state": "driver_lost", "detail": "the process that reads NVML ended"}
        report |= crashed
        for answer in answers(reader, period_s):
            silent_s = time.monotonic() - answered_s
            if answer is not None:
                answered_s = time.monotonic()
                report |= {"state": "ok", "detail": "the sensors answer"} | answer
                yield report
            elif silent_s >= HUNG_AFTER_S:
                report |= {"state": "hung", "detail": f"no answer from NVML for {silent_s:.0f} s"}
                yield report
                if silent_s >= KILL_AFTER_S:
                    reader.kill()
        if report["state"] == "ok":
            report |= crashed
        retry_s = time.monotonic() + RETRY_AFTER_S[report["state"]]
        # Not waited for: what hangs in the kernel dies when the kernel lets go of it.
        while time.monotonic() < retry_s or reader.poll() is None:
            yield report
            time.sleep(period_s)


def stamped(report: Json, sequence: int = 0) -> str:
    stamps = {"sequence": sequence, "written_boottime_s": boottime_s()}
    return json.dumps(stamps | report)


def keep_writing(file: Path, library: str, period_s: float) -> None:
    """Rewrite `file`, which is old or new at any time, never half; say what changes on stderr."""
    beside, said = file.with_name(f"{file.name}.new"), ""
    for sequence, report in enumerate(reports(library, period_s)):
        state = str(report["state"])
        news = f"{state}: {report['detail']}"
        try:
            beside.write_text(stamped(report, sequence), "utf-8")
            beside.replace(file)
        except OSError as error:  # a full or missing volume may be mended
            state = news = f"cannot write {file}: {error.strerror}"
        if state != said:
            sys.stderr.write(f"gpu probe: {news}\n")
            said = state


# --- by hand --------------------------------------------------------------------------------------


def once(library: str, period_s: float) -> Json:
    """The first report that is more than a driver that wakes slowly."""
    began_s = time.monotonic()
    return next(
        report
        for report in reports(library, period_s)
        if report["state"] != "hung" or time.monotonic() - began_s > 3 * HUNG_AFTER_S
    )


def in_words(report: Json) -> str:
    def degrees(value: int | None) -> str:
        return "unknown" if value is None else f"{value} °C"

    lines = [f"{report['state']}: {report['detail']}"]
    for device in report["devices"]:
        lowered = [name for bit, name in REASONS.items() if (device["reasons"] or 0) & bit]
        lines += [
            f"GPU {device['index']}: {device['name']}, driver {report['driver']}",
            f"  temperature: {degrees(device['temperature_c'])}",
            f"  left before the hardware slows down: {degrees(device['slowdown_in_c'])}",
            f"  clocks lowered by: {', '.join(lowered) or 'nothing known'}",
            *(f"  {name}: {value}" for name, value in device.items() if value is not None),
            f"  not known to NVML: {', '.join(k for k, v in device.items() if v is None)}",
        ]
        if device["mig"]:
            lines.append("  MIG: every figure is the whole card's, none this instance's alone")
    return "\n".join(lines)


def main(arguments: list[str], prog: str = "python3 probe.py") -> int:
    parser = argparse.ArgumentParser(
        prog=prog,
        description=(__doc__ or "").replace("python3 probe.py", prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--file", type=Path, default=os.environ.get("HYOCR_GPU_FILE", FILE))
    parser.add_argument("--once", action="store_true", help="print what the sensors say and end")
    parser.add_argument("--json", action="store_true", help="with --once: print what is written")
    parser.add_argument("--period-s", type=float, default=PERIOD_S, metavar="SECONDS")
    parser.add_argument("--library", default=LIBRARY, help="NVML, by name or path")
    parser.add_argument("--reader", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if options.reader:
        read_forever(options.library, options.period_s)
        return 0
    if options.once:
        report = once(options.library, options.period_s)
        sys.stdout.write((stamped(report) if options.json else in_words(report)) + "\n")
        return EXIT_CODES[report["state"]]
    keep_writing(options.file, options.library, options.period_s)
    raise AssertionError("reports never end")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
