"""Two corrections to vLLM's CPU builds without which HunyuanOCR's architecture does not run.

They touch nothing that differs between callers or images, so the lane still shows what the engine
does as shipped. Files are replaced, never rewritten in place: the installer's cache may share them
by hard link with other environments.

Run inside the environment to be completed: `python cpu_shims.py [SITE_PACKAGES]`.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Shim:
    """Replace `old`, which occurs exactly once, by `new` in `path` (below site-packages)."""

    path: str
    old: str
    new: str


# The oneDNN linear layer wants dense rows, and this model's vision merger passes a permuted tensor:
# "Expected a.stride(-1) == 1 to be true" at the first image, which ends the engine.
CONTIGUOUS = Shim(
    "vllm/model_executor/layers/utils.py",
    "return layer.cpu_linear(x, weight, bias)",
    "return layer.cpu_linear(x.contiguous(), weight, bias)",
)

# The four-axis rotary embedding of the native model inherits a C++ op for one-dimensional
# positions: "free(): invalid pointer" at the first request. The PyTorch form is right.
FOUR_AXIS_ROTARY = Shim(
    "vllm/model_executor/layers/rotary_embedding/xdrope.py",
    "    def forward_cuda(\n",
    "    def forward_cpu(self, positions, query, key=None, offsets=None):\n"
    "        return self.forward_native(positions, query, key, offsets)\n\n"
    "    def forward_cuda(\n",
)


def apply(shim: Shim, site_packages: Path) -> bool:
    """Apply one shim; False when it is there already.

    Raises:
        ValueError: the file is not the one this shim was written for.
    """
    path = site_packages / shim.path
    text = path.read_text()
    if shim.new in text:
        return False
    if text.count(shim.old) != 1:
        raise ValueError(f"{path}: expected one {shim.old!r}, found {text.count(shim.old)}")
    draft = path.with_suffix(".draft")
    draft.write_text(text.replace(shim.old, shim.new))
    os.replace(draft, path)
    return True


def main(site_packages: Path) -> None:
    for shim in (CONTIGUOUS, FOUR_AXIS_ROTARY):
        if (site_packages / shim.path).exists():
            apply(shim, site_packages)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else sysconfig.get_paths()["platlib"]))
