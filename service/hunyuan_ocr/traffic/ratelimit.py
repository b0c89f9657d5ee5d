"""Rate limits by tenant: GCRA, the generic cell rate algorithm, on requests and on cost.

For each of its limits a tenant has one number, its debt: the seconds of its rate that it has used
beforehand, which time pays back. A request is taken if its debt afterwards would be at most the
burst. Both limits decide together: a request that one refuses uses up nothing of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from hunyuan_ocr.errors import QuotaExceeded

_SWEEP_ABOVE = 1024
_SHARED_AGAIN_S = 1.0
_JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Quota:
    """`burst` units at once, refilled by `per_s` units a second."""

    per_s: float
    burst: float

    def wait_s(self, debt_s: float, units: float) -> float:
        """How long until `units` may be taken: zero or less, now.

        More than the whole burst is taken when the burst is untouched, and owed.
        """
        return debt_s - (self.burst - min(units, self.burst)) / self.per_s

    def left(self, debt_s: float) -> float:
        """Units that could be taken now; below zero where some are owed."""
        return self.burst - debt_s * self.per_s


UNLIMITED = Quota(per_s=1e12, burst=1e12)


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits of every tenant: on requests, and on cost in slot seconds."""

    requests: Quota
    cost: Quota


@dataclass(frozen=True, slots=True)
class Debt:
    """What a tenant has used beforehand of each limit, in seconds of its rate."""

    requests_s: float
    cost_s: float


NO_DEBT = Debt(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`wait_s` until the request may be taken; zero or less: it was. `debt` is that after it."""

    wait_s: float
    debt: Debt

    @property
    def taken(self) -> bool:
        return self.wait_s <= 0


class SharedUnavailable(Exception):
    """The store that replicas share did not answer."""


class SharedQuotas(Protocol):
    """Quotas that all replicas draw on."""

    async def take(self, tenant: str, cost: float, least: Debt) -> Verdict:
        """Take one request of `cost` from a tenant whose debt is at least `least`.

        Raises SharedUnavailable.
        """


class LocalQuotas:
    """Quotas of this process alone."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._paid_at: dict[str, tuple[float, float]] = {}
        self._sweep_above = _SWEEP_ABOVE

    def debt(self, now: float, tenant: str) -> Debt:
        requests_at, cost_at = self._paid_at.get(tenant, (now, now))
        return Debt(max(0.0, requests_at - now), max(0.0, cost_at - now))

    def wait_s(self, now: float, tenant: str, cost: float) -> float:
        """How long until one request of `cost` may be taken: zero or less, now."""
        debt = self.debt(now, tenant)
        quotas = self._quotas
        return max(
            quotas.requests.wait_s(debt.requests_s, 1), quotas.cost.wait_s(debt.cost_s, cost)
        )

    def take(self, now: float, tenant: str, cost: float) -> Verdict:
        wait_s = self.wait_s(now, tenant, cost)
        if wait_s <= 0:
            self.charge(now, tenant, cost)
        return Verdict(wait_s, self.debt(now, tenant))

    def charge(self, now: float, tenant: str, cost: float) -> None:
        """Use up one request of `cost`, be it there or not."""
        debt = self.debt(now, tenant)
        self._paid_at[tenant] = (
            now + debt.requests_s + 1 / self._quotas.requests.per_s,
            now + debt.cost_s + cost / self._quotas.cost.per_s,
        )
        if len(self._paid_at) > self._sweep_above:
            self._sweep(now)

    def owe(self, now: float, tenant: str, least: Debt) -> None:
        """Take over what a tenant owes elsewhere, where that is more."""
        debt = self.debt(now, tenant)
        self._paid_at[tenant] = (
            now + max(debt.requests_s, least.requests_s),
            now + max(debt.cost_s, least.cost_s),
        )

    def _sweep(self, now: float) -> None:
        """Forget who owes nothing; seldom enough to cost a request next to nothing."""
        self._paid_at = {name: at for name, at in self._paid_at.items() if max(at) > now}
        self._sweep_above = max(_SWEEP_ABOVE, 2 * len(self._paid_at))


class RateLimiter:
    """Quotas of this process, and, where there is a store, of all replicas.

    The local quota runs always, and takes over what tenants owe at other replicas: what it
    refuses the shared one would refuse too, which keeps floods away from the store. While the
    store does not answer, the local quota alone decides; afterwards tenants bring along what they
    used meanwhile. Used by one event loop.
    """

    def __init__(
        self,
        quotas: Quotas,
        shared: SharedQuotas | None,
        *,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._local = LocalQuotas(quotas)
        self._shared = shared
        self._clock = clock
        self._rng = rng
        self._shared_again_at: float | None = None
        self._took_alone: set[str] = set()

    def debt(self, tenant: str) -> Debt:
        """What a tenant owes as far as this process knows."""
        return self._local.debt(self._clock(), tenant)

    def alone(self) -> bool:
        """Whether this process decides by itself because the store does not answer."""
        return self._shared_again_at is not None

    async def take(self, tenant: str, cost: float) -> Verdict:
        """Take one request of `cost` slot seconds from the tenant's quotas.

        Raises QuotaExceeded.
        """
        verdict = await self._take(tenant, cost)
        if not verdict.taken:
            after_s = verdict.wait_s * self._rng.uniform(1, 1 + _JITTER)
            raise QuotaExceeded(retry_after_s=round(max(after_s, 0.1), 1))
        return verdict

    async def _take(self, tenant: str, cost: float) -> Verdict:
        now = self._clock()
        wait_s = self._local.wait_s(now, tenant, cost)
        if wait_s > 0:
            return Verdict(wait_s, self._local.debt(now, tenant))
        if self._shared is not None and self._may_ask(now):
            try:
                return await self._take_shared(self._shared, tenant, cost)
            except SharedUnavailable:
                self._shared_again_at = self._clock() + _SHARED_AGAIN_S
        verdict = self._local.take(self._clock(), tenant, cost)
        if self._shared is not None and verdict.taken:
            self._took_alone.add(tenant)
        return verdict

    async def _take_shared(self, shared: SharedQuotas, tenant: str, cost: float) -> Verdict:
        owes = tenant in self._took_alone
        least = self._local.debt(self._clock(), tenant) if owes else NO_DEBT
        verdict = await shared.take(tenant, cost, least)
        self._shared_again_at = None
        self._took_alone.discard(tenant)
        if verdict.taken:
            self._local.charge(self._clock(), tenant, cost)
        self._local.owe(self._clock(), tenant, verdict.debt)
        return verdict

    def _may_ask(self, now: float) -> bool:
        """One request at a time finds out whether a silent store is back."""
        if self._shared_again_at is None:
            return True
        if now < self._shared_again_at:
            return False
        self._shared_again_at = now + _SHARED_AGAIN_S
        return True
