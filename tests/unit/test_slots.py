"""Slots and the byte budget: never above their limits, always given back."""

from __future__ import annotations

import asyncio
import random
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hunyuan_ocr.errors import QueueFull
from hunyuan_ocr.traffic.slots import ByteBudget, Slots


async def test_slots_hold_their_limit_under_random_cancels() -> None:
    rng = random.Random(1)
    slots = Slots(3)
    highest = 0

    async def work() -> None:
        nonlocal highest
        async with slots.hold(nullcontext()):
            highest = max(highest, slots.held)
            await asyncio.sleep(rng.random() / 100)
            if rng.random() < 0.3:
                raise ValueError

    tasks = [asyncio.create_task(work()) for _ in range(300)]
    for task in tasks:
        if rng.random() < 0.3:
            task.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert highest == 3
    assert (slots.held, slots.waiting) == (0, 0)
    async with asyncio.timeout(1), slots.hold(nullcontext()):
        assert slots.held == 1


async def test_first_come_first_served() -> None:
    slots = Slots(1)
    served = []

    async def work(number: int) -> None:
        async with slots.hold(nullcontext()):
            await asyncio.sleep(0)
            served.append(number)

    await asyncio.gather(*(work(number) for number in range(20)))
    assert served == list(range(20))


@given(st.lists(st.integers(0, 60), max_size=50), st.integers(0, 100))
def test_budget_never_exceeds_its_limit(sizes: list[int], limit: int) -> None:
    budget = ByteBudget(limit)
    taken: list[int] = []
    for size in sizes:
        if sum(taken) + size > limit:
            with pytest.raises(QueueFull):
                budget.take(size)
        else:
            budget.take(size)
            taken.append(size)
        assert budget.held == sum(taken) <= limit
    for size in taken:
        budget.give_back(size)
    assert budget.held == 0


def test_refusals_say_when_to_come_back() -> None:
    with pytest.raises(QueueFull) as refused:
        ByteBudget(1).take(2)
    assert refused.value.status == 429
    assert refused.value.retry_after_s
