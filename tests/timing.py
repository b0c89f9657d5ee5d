"""Whether work grows in proportion to its size, on machines of any speed and however busy."""

from __future__ import annotations

import time
from collections.abc import Callable

# Four times the input takes four times as long if linear, sixteen times if quadratic.
FACTOR = 4
_LINEAR_MAX = 9.0
_REPEATS = 5
_TRIES = 4


def is_linear(work: Callable[[int], object], size: int) -> bool:
    """Compare the best CPU times of `work(size / 4)` and `work(size)`.

    Quadratic work fails every try; linear work that was disturbed in one passes another.
    """
    return any(
        _best_s(work, size) <= _LINEAR_MAX * _best_s(work, size // FACTOR) for _ in range(_TRIES)
    )


def _best_s(work: Callable[[int], object], size: int) -> float:
    times_s = []
    for _ in range(_REPEATS):
        started = time.process_time()
        work(size)
        times_s.append(time.process_time() - started)
    return max(min(times_s), 1e-4)
