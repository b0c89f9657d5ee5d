"""The ladder of measures under lasting pressure, least harm first; refusing is always possible."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Step(IntEnum):
    """Each step includes those before it."""

    NORMAL = 0
    SHRINK_BATCH = 1
    LOWER_PIXELS = 2


@dataclass(frozen=True, slots=True)
class LadderOptions:
    """Pressure is the fuller of the queues in which callers wait (not batch), 0 to 1 of its bound.

    One step up after `up_after_s` at or above `up_at`, one down after `down_after_s` at or below
    `down_at`; between the two the ladder stays where it is.
    """

    up_at: float = 0.8
    down_at: float = 0.4
    up_after_s: float = 5.0
    down_after_s: float = 20.0
    top: Step = Step.LOWER_PIXELS


@dataclass(frozen=True, slots=True)
class Measures:
    """What a step asks for."""

    batch_slots_max: float
    pixel_factor: float


_BATCH_SLOTS_SHRUNK = 1.0
# The part of the usual pixels that a page is still read well at, if it is not small print.
FEWER_PIXELS = 0.5


class Ladder:
    """Which step is in force."""

    def __init__(self, options: LadderOptions) -> None:
        self._options = options
        self._pressed_since: float | None = None
        self._eased_since: float | None = None
        self.step = Step.NORMAL

    def observe(self, now: float, pressure: float) -> Step:
        """Tell the pressure now, about once a second; at most one step is taken."""
        options = self._options
        self._pressed_since = _since(self._pressed_since, now, pressure >= options.up_at)
        self._eased_since = _since(self._eased_since, now, pressure <= options.down_at)
        if _lasted(self._pressed_since, now, options.up_after_s):
            self._go(min(self.step + 1, options.top))
        elif _lasted(self._eased_since, now, options.down_after_s):
            self._go(max(self.step - 1, Step.NORMAL))
        return self.step

    @property
    def measures(self) -> Measures:
        return Measures(
            batch_slots_max=_BATCH_SLOTS_SHRUNK if self.step >= Step.SHRINK_BATCH else float("inf"),
            pixel_factor=FEWER_PIXELS if self.step >= Step.LOWER_PIXELS else 1.0,
        )

    def _go(self, step: int) -> None:
        """The next step needs its own time."""
        self.step = Step(step)
        self._pressed_since = self._eased_since = None


def _since(since: float | None, now: float, holds: bool) -> float | None:
    if not holds:
        return None
    return now if since is None else min(since, now)


def _lasted(since: float | None, now: float, duration_s: float) -> bool:
    return since is not None and now - since >= duration_s
