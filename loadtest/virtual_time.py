"""An event loop whose clock jumps to the next timer: hours of load in seconds, the same each time.

Only timers may be waited for, and no sockets.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class _Jump(selectors.SelectSelector):
    """Instead of waiting, it moves the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing is due: this would wait for ever")
        self.now += max(0.0, timeout)
        return []


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now

    def block(self, seconds: float) -> None:
        self._jump.now += seconds


def block(seconds: float) -> None:
    """Let time pass as code does that keeps the loop busy, within `run`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _Loop)  # noqa: S101
    loop.block(seconds)


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """As asyncio.run, in virtual time."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)
