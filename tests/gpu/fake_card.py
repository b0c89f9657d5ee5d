"""A card that says what it is told to, behind a library of our own in place of NVML."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)

# A card of 24 GB at rest, by the names of the fake library's script.
RTX_4090_D: dict[str, object] = {
    "devices": 1,
    "driver": "580.159.04",
    "name": "NVIDIA GeForce RTX 4090 D",
    "uuid": "GPU-6a1f0000-0000-0000-0000-000000000000",
    "temperature": 40,
    "margin": 42,
    "margin_shutdown": -7,
    "margin_slowdown": -2,
    "margin_gpu_max": 0,
    "reasons": 0,
    "throttled_software_thermal": 3_000_000_000,
    "throttled_hardware_thermal": 500_000_000,
    "throttled_power_brake": 70_000_000,
    "utilisation_gpu": 50,
    "utilisation_memory": 20,
    "memory_total": 25_757_220_864,
    "memory_reserved": 400_000_000,
    "memory_used": 1_000_000_000,
    "power": 77_526,
    "power_limit": 425_000,
    "sm_clock": 2520,
    "max_sm_clock": 3105,
    "fan": 30,
}


def compiled(folder: Path, *flags: str) -> str:
    """The path of the fake library. Raises OSError where nothing compiles C."""
    if COMPILER is None:
        raise OSError("the fake NVML is written in C: install a compiler (apt-get install gcc)")
    library = folder / "libnvidia-ml.so.1"
    command = [COMPILER, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", *flags]
    subprocess.run([*command, "-o", library, SOURCE], check=True)
    return str(library)


def script(**changes: object) -> str:
    """RTX_4090_D with `changes`; None leaves a line out, `__` in a name is a dot."""
    lines = RTX_4090_D | {key.replace("__", "."): value for key, value in changes.items()}
    return "".join(f"{key} {value}\n" for key, value in lines.items() if value is not None)


@dataclass
class Card:
    """What the fake library answers from now on."""

    script: Path

    def __call__(self, **changes: object) -> None:
        """As `script`."""
        self.script.with_suffix(".new").write_text(script(**changes))
        self.script.with_suffix(".new").replace(self.script)
