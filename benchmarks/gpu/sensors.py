"""What the GPU's sensors give, raw: nvidia-smi's text, and NVML fields by number."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Callable, Iterable
from typing import Any

FIELDS = (*range(191, 200), 82, 140, 158, 185, 186, 187, 203, 204, 251, 252, 253, 254, 255)
CALLS = (
    "nvmlDeviceGetName", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetSupportedClocksEventReasons",
    "nvmlDeviceGetPerformanceState", "nvmlDeviceGetTotalEnergyConsumption",
)  # fmt: skip


def _try(call: Callable[[], Any]) -> object:
    try:
        value = call()
    except Exception as error:  # noqa: BLE001 - what NVML answers is the finding
        return f"{type(error).__name__}: {error}"
    names = [name for name, *_ in getattr(value, "_fields_", ())]
    return {name: str(getattr(value, name)) for name in names} if names else value


def _field(nvml: Any, handle: Any, number: int) -> object:
    value: Any = _try(lambda: nvml.nvmlDeviceGetFieldValues(handle, [number])[0])
    if isinstance(value, str):
        return value
    if value.nvmlReturn:
        return f"NVML code {value.nvmlReturn}"
    kinds = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
    return getattr(value.value, kinds[value.valueType])


def _device() -> tuple[Any, Any]:
    """NVML and the handle of the first GPU."""
    nvml: Any = importlib.import_module("pynvml")  # there where a GPU is
    nvml.nvmlInit()
    return nvml, nvml.nvmlDeviceGetHandleByIndex(0)


def read() -> dict[str, object]:
    """Everything once. What is not to be had is told by its error."""
    nvml, handle = _device()

    def ask(call: str, *arguments: int) -> object:
        return _try(lambda: getattr(nvml, call)(handle, *arguments))

    thresholds = {"shutdown": 0, "slowdown": 1, "mem_max": 2, "gpu_max": 3}
    return {
        "driver": _try(lambda: nvml.nvmlSystemGetDriverVersion()),
        "calls": {call: ask(call) for call in CALLS},
        "temperature_gpu": ask("nvmlDeviceGetTemperature", 0),
        "thresholds": {
            name: ask("nvmlDeviceGetTemperatureThreshold", number)
            for name, number in thresholds.items()
        },
        "fields": {str(number): _field(nvml, handle, number) for number in FIELDS},
        "clocks_mhz": {str(kind): ask("nvmlDeviceGetClockInfo", kind) for kind in range(4)},
    }


def used_memory(pids: Iterable[int]) -> dict[str, object]:
    """GPU memory of these processes and of the whole device, MiB."""
    nvml, handle = _device()
    wanted = set(pids)
    processes = {
        str(p.pid): (p.usedGpuMemory or 0) >> 20
        for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        if p.pid in wanted
    }
    return {"processes": processes, "device": nvml.nvmlDeviceGetMemoryInfo(handle).used >> 20}


def smi() -> str:
    """nvidia-smi's own report, whole."""
    done = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
