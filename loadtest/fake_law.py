"""A server whose capacity, knee and service times are known, in any loop's time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import random
from dataclasses import dataclass
from statistics import NormalDist

_DUE_S = 1e-9


@dataclass(frozen=True, slots=True)
class Law:
    """With n requests in it, the server does `rate(n)` units of work a second, shared equally.

    A request is `service_s` of work on average, log-normal with coefficient of variation `cv`.
    Up to the `knee` the rate grows with n to the power `growth`, behind it to the power `tail`;
    the higher `sharpness`, the sharper the corner. More than `limit` are refused.
    """

    service_s: float
    knee: float = math.inf
    growth: float = 1.0
    tail: float = 0.0
    sharpness: float = math.inf
    cv: float = 0.3
    limit: float = math.inf

    def rate(self, n: int) -> float:
        """Requests finished a second with n in it."""
        if math.isinf(self.knee):
            return float(n**self.growth) / self.service_s
        part = n / self.knee
        full = self.knee**self.growth / self.service_s
        before, behind = part**self.growth, part**self.tail
        if math.isinf(self.sharpness):
            return float(full * min(before, behind))
        p = self.sharpness
        return float(full * (before**-p + behind**-p) ** (-1 / p))

    def latency_quantile_s(self, in_flight: int, share: float) -> float:
        """Of callers who ask again at once, so that always as many are in it."""
        return self.work_quantile(share) * in_flight / self.rate(in_flight)

    def work_quantile(self, share: float) -> float:
        mu, sigma = self._log_normal()
        return math.exp(mu + sigma * NormalDist().inv_cdf(share))

    def draw(self, rng: random.Random) -> float:
        """A request's work, 1 on average."""
        return rng.lognormvariate(*self._log_normal())

    def _log_normal(self) -> tuple[float, float]:
        variance = math.log1p(self.cv**2)
        return -variance / 2, math.sqrt(variance)


class Refused(Exception):
    """The server is full."""


class SharedServer:
    """Works by a law. Each request ends at a point of the server's own time, which runs more
    slowly the more there are.
    """

    def __init__(self, law: Law, seed: int = 0) -> None:
        self.law = law
        self._rng = random.Random(seed)  # noqa: S311 - service times
        self._loop = asyncio.get_running_loop()
        self._due: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._inside = 0
        self._own = 0.0
        self._looked = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    async def work(self) -> None:
        """One request. Raises Refused."""
        if self._inside >= self.law.limit:
            raise Refused
        self._look()
        done: asyncio.Future[None] = self._loop.create_future()
        due = self._own + self.law.draw(self._rng)
        heapq.heappush(self._due, (due, next(self._numbers), done))
        self._inside += 1
        self._plan()
        try:
            await done
        finally:
            if done.cancelled():
                self._look()
                self._inside -= 1
                self._plan()

    def _speed(self) -> float:
        return self.law.rate(self._inside) / self._inside if self._inside else 0.0

    def _look(self) -> None:
        now = self._loop.time()
        self._own += (now - self._looked) * self._speed()
        self._looked = now

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._due and self._due[0][2].done():
            heapq.heappop(self._due)
        if self._due:
            after_s = (self._due[0][0] - self._own) / self._speed()
            self._timer = self._loop.call_later(max(0.0, after_s), self._finish)

    def _finish(self) -> None:
        self._look()
        while self._due and (self._due[0][2].done() or self._due[0][0] <= self._own + _DUE_S):
            _, _, done = heapq.heappop(self._due)
            if not done.done():
                self._inside -= 1
                done.set_result(None)
        self._plan()
