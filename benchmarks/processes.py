"""Processes below another and their CPU time, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Places behind the name in /proc/PID/stat: the parent; user and system time, own and of children
# that are gone.
_PARENT = 1
_TIMES = slice(11, 15)


def tree_cpu_s(root: int) -> float:
    """User and system seconds of `root` and its descendants; 0 for `root` 0."""
    stats = _stats()
    ticks = sum(int(ticks) for pid in _family(root, stats) for ticks in stats[pid][_TIMES])
    return ticks / _TICKS_PER_S


def descendants(root: int) -> set[int]:
    """The processes below `root`."""
    return _family(root, _stats()) - {root}


def _family(root: int, stats: dict[int, list[str]]) -> set[int]:
    family, found = {root} & stats.keys(), 0
    while len(family) != found:
        found = len(family)
        family |= {pid for pid, fields in stats.items() if int(fields[_PARENT]) in family}
    return family


def _stats() -> dict[int, list[str]]:
    stats = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                text = (folder / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            stats[int(folder.name)] = text.rpartition(")")[2].split()
    return stats
