"""Files that a worker process may not read, by Linux's Landlock.

A worker runs foreign bytes through large libraries. It is of the same user as the service, so file
modes do not keep it from the pod's token, and neither do volumes: they belong to the container.
Landlock takes the right away from the process itself, for good, and with it that to look into the
memory of its parent; the parent's environment stays readable. It is there from Linux 5.13 on, if
the kernel was built and started with it. See landlock(7).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Where every client looks for a pod's token.
CREDENTIALS = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# The same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_READ_FILE = 1 << 2
_PR_SET_NO_NEW_PRIVS = 38


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def available() -> bool:
    """Whether this kernel has Landlock and lets this process use it."""
    if sys.platform != "linux":
        return False
    return bool(_libc().syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG) > 0)


def hide(folder: Path) -> None:
    """Let this thread, and what it starts, read no file below `folder`, for good.

    Nor can files be read that are made later in a folder on the way there (`/`, `/run`…), but those
    in other folders can. Does nothing where there is no such folder or no Landlock.

    Raises:
        RuntimeError: there are other threads, which would keep their rights; numpy starts some.
        OSError: the kernel refuses.
    """
    folder = folder.resolve()
    if not folder.is_dir() or not available():
        return
    if len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("hide() was called when there were other threads")
    libc = _libc()
    ruleset = _checked(
        libc.syscall(
            _CREATE_RULESET, ctypes.byref(_Ruleset(_READ_FILE)), ctypes.sizeof(_Ruleset), 0
        )
    )
    try:
        for path in _beside(folder):
            _allow(libc, ruleset, path)
        _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _checked(libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _beside(folder: Path) -> Iterator[Path]:
    """Everything that is neither `folder` nor on the way there; a link counts where it leads."""
    for above in folder.parents:
        for entry in os.scandir(above):
            if not (folder.is_relative_to(entry.path) or entry.is_symlink()):
                yield Path(entry.path)


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):  # gone by now, or not ours to read anyway
        return
    try:
        rule = _PathBeneath(_READ_FILE, handle)
        _checked(libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(handle)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
