"""The generator in virtual time, where every figure can be foretold."""

from __future__ import annotations

import asyncio
import random
from itertools import islice

import pytest

from loadtest import virtual_time
from loadtest.fake_law import Law, Refused, SharedServer
from loadtest.generator import Record, Send, Timing, run_step
from loadtest.outcomes import Outcome, Reply
from loadtest.schedule import Arrivals, Closed, Load, Open, Replay, due_times, read_trace
from loadtest.slo import Slo
from loadtest.step import Step, summarise

TIMING = Timing(warm_up_s=5, measure_s=20, timeout_s=10)
ANSWERED = Reply(Outcome.ANSWERED)


async def after_a_tenth() -> Reply:
    await asyncio.sleep(0.1)
    return ANSWERED


def step(send: Send, load: Load, timing: Timing = TIMING, slo_s: float = 1.0, **more: int) -> Step:
    async def run() -> Record:
        return await run_step(send, load, timing, **more)

    return summarise(load, virtual_time.run(run()), Slo(slo_s))


def test_callers_who_ask_again_keep_the_server_as_full_as_they_are_many() -> None:
    async def run() -> Record:
        server = SharedServer(Law(0.5, knee=8, cv=0.3))

        async def send() -> Reply:
            await server.work()
            return ANSWERED

        return await run_step(send, Closed(16), TIMING)

    found = summarise(Closed(16), virtual_time.run(run()), Slo(1.0))
    assert found.answered_per_s == pytest.approx(16, rel=0.1)
    assert found.latency is not None
    assert found.latency.p50_s == pytest.approx(1.0, rel=0.1)
    low, high = found.answered_interval
    assert low <= 16 <= high


def test_a_stall_is_felt_by_all_who_were_due_in_it() -> None:
    """The server stands still for three seconds. A generator that waited for answers before it
    asked again would have sent one request in that time, and called one answer late.
    """
    stall = 10.0, 13.0

    async def send() -> Reply:
        now = asyncio.get_running_loop().time()
        if stall[0] <= now < stall[1]:
            await asyncio.sleep(stall[1] - now)
        return await after_a_tenth()

    found = step(send, Open(10, Arrivals.CONSTANT))
    assert found.counts.due == 200
    assert found.counts.late == pytest.approx(21, abs=1)  # due more than 0.9 s before its end
    assert found.latency is not None
    assert found.latency.p95_s == pytest.approx(2.0, abs=0.2)


def test_latency_counts_from_the_intended_send() -> None:
    """The generator itself is busy for a second: what was due then is late, and it says so."""

    async def send() -> Reply:
        if 9.95 < asyncio.get_running_loop().time() < 10.05:
            virtual_time.block(1.0)
        return await after_a_tenth()

    timing = Timing(5, 10, 10)
    found = step(send, Open(100, Arrivals.CONSTANT), timing)
    assert found.latency is not None
    assert found.latency.p99_s == pytest.approx(1.0, abs=0.1)
    assert found.lag_p95_s == pytest.approx(0.5, abs=0.1)
    assert "sent late" in found.generator_limit


def test_what_was_due_before_a_stall_at_the_end_is_not_left_out() -> None:
    async def send() -> Reply:
        if 14.45 < asyncio.get_running_loop().time() < 14.55:
            virtual_time.block(1.0)
        return ANSWERED

    found = step(send, Open(100, Arrivals.CONSTANT), Timing(5, 10, 10))
    assert found.counts.due == 1000
    assert found.counts.answered == 1000


def test_what_had_no_connection_was_never_sent_and_no_answer() -> None:
    async def send() -> Reply:
        await asyncio.sleep(1.0)
        return ANSWERED

    found = step(send, Open(10, Arrivals.CONSTANT), Timing(0, 20, 3), in_flight_max=4)
    assert found.counts.unsent == pytest.approx(0.6 * 200, abs=5)
    assert found.counts.unsent + found.counts.answered == found.counts.due
    assert found.failed_share == pytest.approx(0.6, abs=0.05)
    assert "never sent" in found.generator_limit
    assert not found.held


def test_the_warm_up_does_not_count() -> None:
    async def send() -> Reply:
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(3.0 if now < 4 else 0.1)
        return ANSWERED

    found = step(send, Open(10, Arrivals.CONSTANT))
    assert found.latency is not None
    assert found.latency.p99_s == pytest.approx(0.1)
    assert found.counts.in_time == 200


def test_load_lasts_until_what_counts_has_ended() -> None:
    """Else the last requests would have the server to themselves, and be fast."""
    law = Law(1.0, knee=4, cv=0.0)

    async def run() -> Record:
        server = SharedServer(law)

        async def send() -> Reply:
            await server.work()
            return ANSWERED

        return await run_step(send, Closed(16), Timing(6, 6, 60))

    record = virtual_time.run(run())
    counted = [s.latency_s for s in record.samples if 6 <= s.due < 12]
    assert min(counted) == pytest.approx(4.0, rel=0.1)


def served(law: Law, load: Load, timing: Timing) -> Step:
    """A step before a server that answers everybody."""

    async def run() -> Record:
        server = SharedServer(law)

        async def send() -> Reply:
            await server.work()
            return ANSWERED

        return await run_step(send, load, timing)

    return summarise(load, virtual_time.run(run()), Slo(40.0))


@pytest.mark.parametrize("in_flight", [32, 128, 256])
def test_answers_that_take_longer_than_the_warm_up_are_the_servers_capacity(
    in_flight: int,
) -> None:
    found = served(Law(1.0, knee=16, cv=0.2), Closed(in_flight), Timing(5, 20, 60))
    assert found.answered_per_s == pytest.approx(16, rel=0.03)
    assert found.failed_share == 0


@pytest.mark.parametrize("page_s", [22.0, 30.0])
def test_answers_that_take_longer_than_the_window_count(page_s: float) -> None:
    found = served(Law(page_s, knee=4, cv=0.0), Closed(1), Timing(5, 20, 60))
    assert found.counts.due >= 1
    assert found.held
    assert found.answered_per_s == pytest.approx(1 / page_s, rel=0.01)


def test_a_closed_loop_has_as_many_callers_as_it_is_told() -> None:
    found = step(after_a_tenth, Closed(50), in_flight_max=10)
    assert found.counts.unsent == 0
    assert found.answered_per_s == pytest.approx(500, rel=0.01)


def test_where_nothing_was_due_it_says_so() -> None:
    found = step(after_a_tenth, Open(0.001, Arrivals.CONSTANT))
    assert found.counts.due == 0
    assert "measure longer" in found.generator_limit


@pytest.mark.parametrize("load", [Open(50), Open(50, Arrivals.BURST), Open(50, Arrivals.CONSTANT)])
def test_every_kind_of_arrival_brings_what_was_asked_for(load: Open) -> None:
    found = step(after_a_tenth, load, Timing(5, 200, 10))
    assert found.counts.due == pytest.approx(10_000, rel=0.1)
    assert found.counts.in_time == found.counts.due
    assert found.answered_per_s == pytest.approx(50, rel=0.1)


def test_a_trace_is_replayed_over_again() -> None:
    load = read_trace("100.0\n100.5\n102.0\n")
    assert list(islice(due_times(load, random.Random(0)), 6)) == [0.0, 0.5, 2.0, 2.0, 2.5, 4.0]
    assert isinstance(load, Replay)
    assert load.level == 1.5


@pytest.mark.parametrize("text", ["", "2\n1\n", "-1\n", "now\n", "3\n", "3\n3\n", "0\ninf\n"])
def test_what_is_no_trace_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_trace(text)


def test_fast_refusals_are_no_capacity() -> None:
    """Callers who are refused come back when they were told to, and are not answers."""

    async def run() -> Record:
        server = SharedServer(Law(1.0, knee=4, cv=0.2, limit=8))

        async def send() -> Reply:
            try:
                await server.work()
            except Refused:
                return Reply(Outcome.REFUSED, "queue_full", retry_after_s=2.0)
            return ANSWERED

        return await run_step(send, Closed(64), TIMING)

    found = summarise(Closed(64), virtual_time.run(run()), Slo(5.0))
    assert found.answered_per_s == pytest.approx(4, rel=0.1)
    assert found.goodput_per_s <= found.answered_per_s
    refused = found.counts.refused["queue_full"]
    assert refused == pytest.approx(56 / 2.0 * 20, rel=0.2)
    assert found.retry_after_s == 2.0
    assert found.counts.due == refused + found.counts.answered
    assert not found.held


def test_a_silent_server_ends_the_step_all_the_same() -> None:
    async def send() -> Reply:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    found = step(send, Closed(4), Timing(0, 5, 2))
    assert found.counts.timed_out == found.counts.due > 0
    assert found.answered_per_s == 0
    assert found.latency is None
    assert found.failed_share == 1


def test_seldom_requests_end_the_step_in_time() -> None:
    """The next is due long after its end, and is not waited for."""

    async def run() -> float:
        await run_step(after_a_tenth, Replay([0.0, 900.0]), Timing(0, 5, 2))
        return asyncio.get_running_loop().time()

    assert virtual_time.run(run()) < 6


def test_the_same_seed_sends_the_same_load() -> None:
    first, again, other = (step(after_a_tenth, Open(5), seed=seed) for seed in (1, 1, 2))
    assert (first.counts, first.latency) == (again.counts, again.latency)
    assert first.counts != other.counts
