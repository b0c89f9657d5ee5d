"""The byte budget: never above its limit, always given back, and not one caller's alone."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hunyuan_ocr.errors import QueueFull
from hunyuan_ocr.traffic.byte_budget import ByteBudget


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=50))
def test_budget_never_exceeds_its_limit(bodies: list[tuple[str, int]]) -> None:
    budget = ByteBudget(100)
    taken: list[tuple[str, int]] = []
    for tenant, size in bodies:
        with suppress(QueueFull):
            budget.take(tenant, size)
            taken.append((tenant, size))
        assert budget.held == sum(size for _, size in taken) <= 100
    for tenant, size in taken:
        budget.give_back(tenant, size)
    assert budget.held == 0


def test_one_body_may_take_all_of_it() -> None:
    ByteBudget(100).take("a", 100)


def test_a_caller_leaves_some_room_to_others() -> None:
    budget = ByteBudget(100)
    for _ in range(8):
        budget.take("a", 10)
    with pytest.raises(QueueFull):
        budget.take("a", 10)
    budget.take("b", 10)


def test_refusals_say_when_to_come_back() -> None:
    with pytest.raises(QueueFull) as refused:
        ByteBudget(1).take("a", 2)
    assert refused.value.status == 429
    assert refused.value.retry_after_s
