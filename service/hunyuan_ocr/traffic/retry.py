"""When refused callers may come back, so that they do not all come back together."""

from __future__ import annotations

from random import Random

_SHORTEST_S = 1.0
_LONGEST_S = 60.0
_JITTER = 0.25


class ReturnTimes:
    """A queue of those sent away: each is told to come when those told before are served.

    Nobody is held to it and nothing is reserved; it drains at the rate of the engine.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._cost = 0.0
        self._at = 0.0

    def next_s(self, now: float, wait_s: float, cost: float, rate: float) -> float:
        """Seconds to come back after: `wait_s` until there is room again, then its place among
        those sent away. `rate` is the cost served in a second."""
        self._cost = max(0.0, self._cost - max(0.0, now - self._at) * rate)
        self._at = now
        self._cost = min(self._cost + cost, _LONGEST_S * rate)
        after_s = wait_s + self._cost / rate
        spread_s = after_s * self._rng.uniform(1 - _JITTER, 1 + _JITTER)
        return min(max(spread_s, _SHORTEST_S), _LONGEST_S)
