"""When refused callers may come back, so that they do not all come back together."""

from __future__ import annotations

from random import Random

_SHORTEST_S = 1.0
_LONGEST_S = 60.0
_JITTER = 0.25
# How often callers are forgotten whose time to come back is past.
_SWEEP_S = 1.0


def spread_s(after_s: float, rng: Random) -> float:
    """About `after_s`, within bounds, and at the bounds as spread as between them."""
    middle_s = min(max(after_s, _SHORTEST_S / (1 - _JITTER)), _LONGEST_S / (1 + _JITTER))
    return middle_s * rng.uniform(1 - _JITTER, 1 + _JITTER)


class ReturnTimes:
    """A queue of those sent away: each is told to come when those told before are served.

    Tenants have equal parts in it, as in the real one: whoever is sent away often has a long way
    back, and lengthens nobody else's. Nobody is held to it and nothing is reserved; it drains at
    the rate of the engine.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._all_until = 0.0  # when all that were sent away would be served
        self._until: dict[str, float] = {}  # and all of a tenant, by its equal part
        self._swept_at = 0.0

    def next_s(self, now: float, tenant: str, wait_s: float, cost: float, rate: float) -> float:
        """Seconds to come back after: `wait_s` until there is room again, then its place among
        those sent away. `rate` is the cost served in a second."""
        if now - self._swept_at >= _SWEEP_S:
            self._until = {name: until for name, until in self._until.items() if until > now}
            self._swept_at = now
        self._all_until = _later(now, self._all_until, cost / rate)
        own_until = self._until.get(tenant, now)
        others = len(self._until) - (tenant in self._until)
        own_until = self._until[tenant] = _later(now, own_until, cost / rate * (1 + others))
        return spread_s(wait_s + min(self._all_until, own_until) - now, self._rng)


def _later(now: float, until: float, seconds: float) -> float:
    return min(max(now, until) + seconds, now + _LONGEST_S)
