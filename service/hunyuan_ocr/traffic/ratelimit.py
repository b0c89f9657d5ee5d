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
# Whose requests find out whether the store answers; no key and no address is empty.
_NOBODY = ""


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
            self._charge(now, tenant, 1, cost)
        return Verdict(wait_s, self.debt(now, tenant))

    def settle(self, now: float, tenant: str, extra: float) -> None:
        """A request that was taken cost `extra` more, or less, than it was taken for."""
        self._charge(now, tenant, 0, extra)

    def owe(self, now: float, tenant: str, least: Debt) -> None:
        """Take over what a tenant owes elsewhere, where that is more."""
        debt = self.debt(now, tenant)
        requests_s = max(debt.requests_s, least.requests_s)
        self._set(now, tenant, Debt(requests_s, max(debt.cost_s, least.cost_s)))

    def _charge(self, now: float, tenant: str, requests: int, cost: float) -> None:
        debt, quotas = self.debt(now, tenant), self._quotas
        requests_s = debt.requests_s + requests / quotas.requests.per_s
        self._set(now, tenant, Debt(requests_s, debt.cost_s + cost / quotas.cost.per_s))

    def _set(self, now: float, tenant: str, debt: Debt) -> None:
        """Seldom enough to cost next to nothing, forget who owes nothing."""
        self._paid_at[tenant] = (now + debt.requests_s, now + debt.cost_s)
        if len(self._paid_at) > self._sweep_above:
            self._paid_at = {name: at for name, at in self._paid_at.items() if max(at) > now}
            self._sweep_above = max(_SWEEP_ABOVE, 2 * len(self._paid_at))


class RateLimiter:
    """Quotas of this process, and, where there is a store, of all replicas.

    The local quota runs always, and takes over what tenants owe at other replicas: what it
    refuses the shared one would refuse too, which keeps floods away from the store. While the
    store does not answer, the local quota alone decides; afterwards tenants bring along what they
    used meanwhile, as they do what a request cost beyond what it was taken for. Used by one event
    loop.
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
        self._owe_more: set[str] = set()  # than the store knows
        self._sweep_above = _SWEEP_ABOVE

    def debt(self, tenant: str) -> Debt:
        """What a tenant owes as far as this process knows."""
        return self._local.debt(self._clock(), tenant)

    def alone(self) -> bool:
        """Whether this process decides by itself because the store does not answer."""
        return self._shared_again_at is not None

    async def probe(self) -> None:
        """Find out whether a store that did not answer does, by a request of nobody; to be called
        now and then, else it would be known only when somebody asks for something."""
        if self._shared is not None and self.alone() and self._may_ask(self._clock()):
            await self._ask(self._shared, _NOBODY, 0.0)

    def check(self, tenant: str) -> None:
        """Raise QuotaExceeded where nothing is left as far as this process knows; takes nothing."""
        self._refuse_for(self._local.wait_s(self._clock(), tenant, 0.0))

    def settle(self, tenant: str, extra: float) -> None:
        """A request that was taken cost `extra` slot seconds more, or less, than expected."""
        self._local.settle(self._clock(), tenant, extra)
        if extra > 0:
            self._bring_along(tenant)

    async def take(self, tenant: str, cost: float) -> Verdict:
        """Take one request of `cost` slot seconds from the tenant's quotas.

        Raises QuotaExceeded.
        """
        verdict = await self._take(tenant, cost)
        self._refuse_for(verdict.wait_s)
        return verdict

    def _refuse_for(self, wait_s: float) -> None:
        if wait_s > 0:
            after_s = wait_s * self._rng.uniform(1, 1 + _JITTER)
            raise QuotaExceeded(retry_after_s=round(max(after_s, 0.1), 1))

    async def _take(self, tenant: str, cost: float) -> Verdict:
        now = self._clock()
        wait_s = self._local.wait_s(now, tenant, cost)
        if wait_s > 0:
            return Verdict(wait_s, self._local.debt(now, tenant))
        verdict = None
        if self._shared is not None and self._may_ask(now):
            verdict = await self._ask(self._shared, tenant, cost)
        if verdict is None:
            verdict = self._local.take(self._clock(), tenant, cost)
            if verdict.taken:
                self._bring_along(tenant)
        return verdict

    async def _ask(self, shared: SharedQuotas, tenant: str, cost: float) -> Verdict | None:
        """What the store says; None where it does not answer."""
        owes_more = tenant in self._owe_more
        least = self._local.debt(self._clock(), tenant) if owes_more else NO_DEBT
        self._owe_more.discard(tenant)
        heard = False
        try:
            verdict = await shared.take(tenant, cost, least)
            heard = True
        except SharedUnavailable:
            self._shared_again_at = self._clock() + _SHARED_AGAIN_S
            return None
        finally:  # the caller may leave meanwhile
            if owes_more and not heard:
                self._bring_along(tenant)
        self._shared_again_at = None
        self._local.owe(self._clock(), tenant, verdict.debt)
        return verdict

    def _bring_along(self, tenant: str) -> None:
        if self._shared is None:
            return
        self._owe_more.add(tenant)
        if len(self._owe_more) > self._sweep_above:
            now = self._clock()
            self._owe_more = {t for t in self._owe_more if self._local.debt(now, t) != NO_DEBT}
            self._sweep_above = max(_SWEEP_ABOVE, 2 * len(self._owe_more))

    def _may_ask(self, now: float) -> bool:
        """One request at a time finds out whether a silent store is back."""
        if self._shared_again_at is None:
            return True
        if now < self._shared_again_at:
            return False
        self._shared_again_at = now + _SHARED_AGAIN_S
        return True
