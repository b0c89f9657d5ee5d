"""Makes every Python process with torch see a smaller GPU than there is.

For an engine's environment: PYTHONPATH begins with this folder, LOADTEST_CARD_GB says how many
gigabytes (10**9) each card has. torch then allocates no more than that in a process, and says that
the card is that large, so that an engine sizes its caches for it. What other libraries take
(CUDA's context, NCCL) is not held to it. A sitecustomize that the environment had is not run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_GB = 10**9


class _AfterTorch(MetaPathFinder):
    """Finds torch where it is, and calls `then` once it has been imported."""

    def __init__(self, then: Callable[[ModuleType], None]) -> None:
        self._then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            _call_after(spec.loader, self._then)
        return spec


def _call_after(loader: Loader, then: Callable[[ModuleType], None]) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        then(module)

    loader.exec_module = exec_module  # type: ignore[method-assign]


def shrink(torch: Any, card_bytes: float) -> None:
    """Hold `torch` to a card of that size, as soon as it starts CUDA in this process."""

    def cap() -> None:
        for device in range(torch.cuda.device_count()):
            total = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, card_bytes / total), device)

    # Not at once: a process that starts CUDA can no longer fork workers that use it.
    torch.cuda._lazy_call(cap)
    for module, name in (
        (torch.cuda, "mem_get_info"),
        (getattr(torch.cuda, "memory", None), "mem_get_info"),
        (getattr(torch, "accelerator", None), "get_memory_info"),
    ):
        if hasattr(module, name):
            setattr(module, name, _smaller(getattr(module, name), card_bytes))


def _smaller(
    look: Callable[..., tuple[int, int]], card_bytes: float
) -> Callable[..., tuple[int, int]]:
    """(free, total) of the smaller card: what is in use is in use on both."""

    def looked(*arguments: Any, **named: Any) -> tuple[int, int]:
        free, total = look(*arguments, **named)
        less = max(0, total - int(card_bytes))
        return max(0, free - less), total - less

    return looked


def _install(card_gb: float) -> None:
    sys.meta_path.insert(0, _AfterTorch(lambda torch: shrink(torch, card_gb * _GB)))


if size := os.environ.get("LOADTEST_CARD_GB"):
    _install(float(size))
