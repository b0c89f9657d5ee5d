"""What is put into vLLM's container: the plugin, the GPU probe and the launcher."""

from __future__ import annotations

import shutil
from pathlib import Path

from hunyuan_ocr.engines import vllm_launcher, vllm_plugin
from hunyuan_ocr.gpu import probe

PROBE = vllm_launcher.PROBE
LAUNCHER = "launcher.py"
_STAGING = ".staging"


def install(folder: Path) -> None:
    """Write it into `folder`; every file is old or new at any time, never half. Raises OSError.

    The launcher comes last: where it is, all is.
    """
    staging = folder / _STAGING
    shutil.rmtree(staging, ignore_errors=True)
    vllm_plugin.install(staging)
    shutil.copyfile(probe.__file__, staging / PROBE)
    shutil.copyfile(vllm_launcher.__file__, staging / LAUNCHER)
    for source in sorted(staging.rglob("*"), key=lambda path: path.name == LAUNCHER):
        if source.is_file():
            target = folder / source.relative_to(staging)
            target.parent.mkdir(exist_ok=True)
            source.replace(target)
    shutil.rmtree(staging)
