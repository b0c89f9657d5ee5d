"""Quotas: never more than rate and burst, alone, together, and while the shared store is away."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hunyuan_ocr.errors import QuotaExceeded
from hunyuan_ocr.traffic.ratelimit import (
    Debt,
    LocalQuotas,
    Quota,
    Quotas,
    RateLimiter,
    SharedUnavailable,
    Verdict,
)

# Refilled so slowly that a test sees the burst alone.
TWENTY = Quotas(Quota(per_s=1e-3, burst=20), Quota(per_s=1e-1, burst=1e4))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_then_the_rate() -> None:
    local = LocalQuotas(Quotas(Quota(2, 10), Quota(1e3, 1e3)))
    assert sum(local.take(0, "a", 1).taken for _ in range(100)) == 10
    assert sum(local.take(step / 100, "a", 1).taken for step in range(1, 501)) == 10


def test_cost_is_limited_like_requests_and_tenants_apart() -> None:
    local = LocalQuotas(Quotas(Quota(100, 100), Quota(1, 10)))
    assert local.take(0, "a", 7).taken
    refused = local.take(0, "a", 7)
    assert not refused.taken
    assert refused.wait_s == pytest.approx(4)
    assert local.take(4.0001, "a", 7).taken
    assert local.take(0, "b", 7).taken


def test_a_refused_request_uses_nothing_up() -> None:
    local = LocalQuotas(Quotas(Quota(1, 3), Quota(1, 10)))
    for _ in range(50):
        local.take(0, "a", 11)
        local.take(0, "a", 11)
    assert local.debt(0, "a").requests_s == 1
    assert not local.take(0.5, "a", 1).taken
    assert local.take(2, "a", 1).taken


def test_what_is_larger_than_the_burst_is_taken_once_and_owed() -> None:
    local = LocalQuotas(Quotas(Quota(1, 10), Quota(1, 10)))
    assert local.take(0, "a", 35).taken
    assert local.take(0, "a", 1).wait_s == pytest.approx(26)


@given(
    st.lists(st.tuples(st.floats(0, 5, allow_subnormal=False), st.floats(0.01, 30)), max_size=100),
    st.floats(0.1, 10),
    st.floats(1, 50),
)
def test_never_more_than_rate_and_burst(
    steps: list[tuple[float, float]], per_s: float, burst: float
) -> None:
    """In any stretch of time; one request beyond the burst may be owed."""
    local = LocalQuotas(Quotas(Quota(1e6, 1e6), Quota(per_s, burst)))
    now, taken = 0.0, []
    for seconds, cost in steps:
        now += seconds
        if local.take(now, "a", cost).taken:
            taken.append((now, min(cost, burst)))
    for first, (begin, _) in enumerate(taken):
        total = 0.0
        for end, cost in taken[first:]:
            total += cost
            assert total <= burst + per_s * (end - begin) + 1e-6


@given(
    st.floats(0.01, 1e3),
    st.floats(1, 1e3),
    st.floats(0.01, 1e3),
    st.floats(0, 1e3, allow_subnormal=False),
)
def test_who_waits_as_told_is_taken(per_s: float, burst: float, cost: float, debt: float) -> None:
    local = LocalQuotas(Quotas(Quota(1e6, 1e6), Quota(per_s, burst)))
    local.settle(0, "a", debt)
    wait_s = max(0.0, local.wait_s(0, "a", cost))
    assert local.take(wait_s * (1 + 1e-9) + 1e-6, "a", cost).taken


def test_tenants_that_owe_nothing_are_forgotten() -> None:
    local = LocalQuotas(Quotas(Quota(1, 10), Quota(1, 10)))
    for number in range(20_000):
        local.take(number, str(number), 1)
    assert len(local._paid_at) < 2000


async def test_refusals_say_when_to_come_back() -> None:
    clock = Clock()
    limiter = RateLimiter(Quotas(Quota(1, 1), Quota(1, 10)), None, clock=clock, rng=Random(1))
    await limiter.take("a", 1)
    with pytest.raises(QuotaExceeded) as refused:
        await limiter.take("a", 1)
    assert refused.value.status == 429
    assert refused.value.retry_after_s is not None
    clock.now = refused.value.retry_after_s
    verdict = await limiter.take("a", 1)
    assert verdict.debt.requests_s == pytest.approx(1)


class SharedStub:
    """A store that can be away; charges what it is told."""

    def __init__(self, quotas: Quotas, clock: Clock) -> None:
        self.local = LocalQuotas(quotas)
        self.clock = clock
        self.away = False
        self.calls = 0
        self.least: list[Debt] = []

    async def take(self, tenant: str, cost: float, least: Debt) -> Verdict:
        self.calls += 1
        await asyncio.sleep(0)
        if self.away:
            raise SharedUnavailable
        self.least.append(least)
        self.local.owe(self.clock(), tenant, least)
        return self.local.take(self.clock(), tenant, cost)


async def attempt(limiter: RateLimiter, tenant: str = "a", cost: float = 1) -> bool:
    try:
        await limiter.take(tenant, cost)
    except QuotaExceeded:
        return False
    return True


async def test_floods_do_not_reach_the_store() -> None:
    clock = Clock()
    shared = SharedStub(TWENTY, clock)
    limiter = RateLimiter(TWENTY, shared, clock=clock, rng=Random(1))
    taken = [await attempt(limiter) for _ in range(500)]
    assert sum(taken) == 20
    assert shared.calls == 20


async def test_local_limits_go_on_while_the_store_is_away_and_are_brought_along() -> None:
    clock = Clock()
    shared = SharedStub(TWENTY, clock)
    limiter = RateLimiter(TWENTY, shared, clock=clock, rng=Random(1))
    shared.away = True
    taken = await asyncio.gather(*(attempt(limiter) for _ in range(15)))
    assert sum(taken) == 15
    assert limiter.alone()
    assert shared.calls == 15
    for _ in range(3):
        assert await attempt(limiter)
    assert shared.calls == 15
    clock.now = 1.5
    assert await attempt(limiter)
    assert shared.calls == 16  # one asked whether it is back
    shared.away = False
    clock.now = 3.0
    assert await attempt(limiter)
    assert not limiter.alone()
    assert shared.least[-1].requests_s == pytest.approx(19 / 1e-3, abs=5)
    assert not await attempt(limiter)


async def test_what_a_caller_used_at_other_replicas_is_shown_and_refused_here() -> None:
    clock = Clock()
    store = SharedStub(TWENTY, clock)
    one, two = (RateLimiter(TWENTY, store, clock=clock, rng=Random(1)) for _ in range(2))
    for _ in range(19):
        assert await attempt(one)
    assert await attempt(two)
    assert TWENTY.requests.left(two.debt("a").requests_s) == pytest.approx(0)
    calls = store.calls
    assert not await attempt(two)
    assert store.calls == calls


async def test_what_a_request_cost_in_the_end_is_owed_here_and_in_the_store() -> None:
    clock = Clock()
    quotas = Quotas(Quota(100, 100), Quota(1, 10))
    shared = SharedStub(quotas, clock)
    limiter = RateLimiter(quotas, shared, clock=clock, rng=Random(1))
    assert await attempt(limiter, cost=2)
    limiter.check("a")
    limiter.settle("a", 12.0)
    assert limiter.debt("a").cost_s == pytest.approx(14)
    with pytest.raises(QuotaExceeded):
        limiter.check("a")
    clock.now = 6.0
    assert await attempt(limiter, cost=2)
    assert shared.local.debt(6.0, "a").cost_s == pytest.approx(10)
    limiter.settle("a", -1.5)
    assert limiter.debt("a").cost_s == pytest.approx(8.5)


async def test_answers_of_the_store_out_of_order_owe_nothing_twice() -> None:
    clock = Clock()

    class Slow(SharedStub):
        async def take(self, tenant: str, cost: float, least: Debt) -> Verdict:
            verdict = await super().take(tenant, cost, least)
            for _ in range(3 - self.calls % 3):
                await asyncio.sleep(0)
            return verdict

    shared = Slow(TWENTY, clock)
    limiter = RateLimiter(TWENTY, shared, clock=clock, rng=Random(1))
    for _ in range(5):
        await asyncio.gather(*(attempt(limiter) for _ in range(3)))
    assert limiter.debt("a") == shared.local.debt(0, "a")


async def test_callers_of_an_outage_are_forgotten() -> None:
    clock = Clock()
    shared = SharedStub(Quotas(Quota(1, 10), Quota(1, 10)), clock)
    shared.away = True
    limiter = RateLimiter(shared.local._quotas, shared, clock=clock, rng=Random(1))
    for number in range(20_000):
        clock.now = number / 10
        await limiter.take(str(number), 1)
    assert len(limiter._owe_more) < 2000


async def test_a_store_that_is_back_is_noticed_without_a_request() -> None:
    clock = Clock()
    shared = SharedStub(TWENTY, clock)
    limiter = RateLimiter(TWENTY, shared, clock=clock, rng=Random(1))
    await limiter.probe()
    assert shared.calls == 0  # it answers: nobody asks
    shared.away = True
    assert await attempt(limiter)
    shared.away = False
    clock.now = 2.0
    await limiter.probe()
    assert not limiter.alone()
