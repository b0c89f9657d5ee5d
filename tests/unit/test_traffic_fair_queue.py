"""Fair queueing over tenants: nobody starves, nobody gains by how it asks, nothing is kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hunyuan_ocr.traffic.fair_queue import FairQueue


@dataclass(eq=False, slots=True)
class Page:
    tenant: str
    number: int
    cost: float = 1.0
    deadline: float = 1e9


class Line:
    """A queue that pages are put in line of."""

    def __init__(self) -> None:
        self.queue: FairQueue[Page] = FairQueue()
        self._numbers = 0

    def put(self, tenant: str, count: int = 1, cost: float = 1.0) -> None:
        for _ in range(count):
            self._numbers += 1
            page = Page(tenant, self._numbers, cost)
            self.queue.book(page)
            self.queue.join(page)

    def take(self) -> Page:
        page = self.queue.take()
        assert page is not None
        return page


def test_a_document_is_read_beside_a_stream_of_newcomers() -> None:
    line = Line()
    line.put("document", 20)
    line.put("first")
    taken = Counter[str]()
    for number in range(600):
        line.put(f"newcomer-{number}")
        taken[line.take().tenant] += 1
    assert taken["document"] == 20


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.floats(0.1, 5)), min_size=2, max_size=6),
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_nobody_starves(shapes: list[tuple[int, float]], newcomers: int, rng: Random) -> None:
    """Whatever others ask for, a tenant's page is taken before each of them had many."""
    line = Line()
    line.put("patient", cost=5.0)
    for turn in range(1000):
        for name, (pages, cost) in enumerate(shapes):
            if rng.random() < 0.5:
                line.put(str(name), pages, cost)
        for _ in range(newcomers):
            line.put(f"new-{turn}-{rng.random()}")
        if line.take().tenant == "patient":
            return
    pytest.fail("it was never taken")


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcde"),
            st.floats(0.1, 10),
            st.floats(-1, 3, allow_subnormal=False),
            st.booleans(),
        ),
        max_size=80,
    )
)
def test_virtual_time_never_goes_back(steps: list[tuple[str, float, float, bool]]) -> None:
    line, latest = Line(), 0.0
    for tenant, cost, part, takes in steps:
        line.put(tenant, cost=cost)
        if takes:
            page = line.take()
            line.queue.settle(page.tenant, max(-page.cost, part * page.cost))
        assert line.queue._virtual >= latest
        latest = line.queue._virtual


def test_no_more_tenants_are_kept_than_wait_or_were_served_lately() -> None:
    line = Line()
    for number in range(5000):
        line.put(f"alone-{number}")
        line.take()
    assert not line.queue._tenants
    line.put("waits", 10_000)
    page = line.take()
    for number in range(5000):
        if page.tenant == "waits":
            line.put(f"beside-{number}")
        page = line.take()
        line.queue.settle(page.tenant, 3.0)
        assert len(line.queue._tenants) < 30
        assert len(line.queue._idle) < 60


def shares(extra: dict[str, float], pages: int) -> dict[str, float]:
    """What tenants get whose pages cost so much more than they are taken for; three are always
    being served before it is known."""
    line = Line()
    for tenant in extra:
        line.put(tenant, pages)
    used, served = dict.fromkeys(extra, 0.0), list[str]()
    for _ in range(pages):
        tenant = line.take().tenant
        served.append(tenant)
        used[tenant] += 1 + extra[tenant]
        if len(served) > 3:
            done = served.pop(0)
            line.queue.settle(done, extra[done])
    return used


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-0.9, 20, allow_subnormal=False), min_size=2, max_size=5))
def test_what_pages_cost_in_the_end_counts(extras: list[float]) -> None:
    used = shares({str(number): extra for number, extra in enumerate(extras)}, pages=400)
    within = 5 * (1 + max(extras))
    assert max(used.values()) - min(used.values()) <= within


def test_settled_costs_add_up_to_what_was_used() -> None:
    line = Line()
    for tenant in ("cheap", "dear"):
        line.put(tenant, 100, cost=2.0)
    for _ in range(10):
        page = line.take()
        line.queue.settle(page.tenant, 1.0 if page.tenant == "dear" else -1.0)
    took = {name: 100 - line.queue._tenants[name].pages for name in ("cheap", "dear")}
    assert line.queue._tenants["dear"].tag.start == pytest.approx(3 * took["dear"])
    assert line.queue._tenants["cheap"].tag.start == pytest.approx(1 * took["cheap"])


def test_newcomers_do_not_wait_for_those_who_paid_too_much() -> None:
    line = Line()
    for tenant in ("one", "two"):
        line.put(tenant, 1000)
    for _ in range(1000):
        line.queue.settle(line.take().tenant, -0.9)
    line.put("newcomer")
    assert any(line.take().tenant == "newcomer" for _ in range(40))


def test_who_paid_too_much_gets_no_turns_of_the_past() -> None:
    line = Line()
    line.put("busy", 100)
    line.put("again")
    for _ in range(10):
        line.take()
    for _ in range(50):
        line.queue.settle("again", -1.0)
    line.put("again", 20)
    assert sum(line.take().tenant == "again" for _ in range(20)) <= 11
