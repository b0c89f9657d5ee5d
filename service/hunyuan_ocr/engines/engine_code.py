"""What is put into vLLM's container: the plugin and the launcher."""

from __future__ import annotations

import shutil
from pathlib import Path

from hunyuan_ocr.engines import vllm_launcher, vllm_plugin

LAUNCHER = "launcher.py"
_STAGING = ".staging"


def install(folder: Path) -> None:
    """Write it into `folder`; every file is old or new at any time, never half. Raises OSError."""
    staging = folder / _STAGING
    shutil.rmtree(staging, ignore_errors=True)
    vllm_plugin.install(staging)
    shutil.copyfile(vllm_launcher.__file__, staging / LAUNCHER)
    for source in staging.rglob("*"):
        if source.is_file():
            target = folder / source.relative_to(staging)
            target.parent.mkdir(exist_ok=True)
            source.replace(target)
    shutil.rmtree(staging)
