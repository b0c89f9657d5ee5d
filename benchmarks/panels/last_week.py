"""A calm day of last week in Prometheus' database, played: panels compare with it."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

_OFFERED = "hunyuan_ocr_offered_load_engine_seconds_per_second"
_CALM = 0.3
_WEEK_S = 7 * 24 * 3600
# Either side of the moment a week ago: panels look back an hour, and a figure takes minutes.
_AROUND_S = 2 * 3600
_STEP_S = 15


def write_last_week(data: Path, labels: Mapping[str, str]) -> None:
    """Blocks for Prometheus' folder, written by its own promtool before it starts."""
    program = shutil.which("promtool")
    if program is None:
        raise SystemExit("no promtool: `make test-rules` installs Debian's")
    pairs = ",".join(f'{name}="{value}"' for name, value in labels.items())
    then = int(time.time()) - _WEEK_S
    lines = [
        f"# TYPE {_OFFERED} gauge",
        *(
            f"{_OFFERED}{{{pairs}}} {_CALM} {at}"
            for at in range(then - _AROUND_S, then + _AROUND_S, _STEP_S)
        ),
        "# EOF\n",
    ]
    file = data.with_suffix(".openmetrics")
    file.write_text("\n".join(lines), "utf-8")
    words = (program, "tsdb", "create-blocks-from", "openmetrics", str(file), str(data))
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
