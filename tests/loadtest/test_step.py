"""Every request that was due is counted once, whatever came of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.display import line
from loadtest.generator import Record, Timing
from loadtest.outcomes import Outcome, Reply, Sample
from loadtest.results import row
from loadtest.schedule import Closed, Open
from loadtest.slo import Slo
from loadtest.step import summarise

TIMING = Timing(warm_up_s=2, measure_s=10, timeout_s=5)
REPLIES = st.builds(
    Reply,
    outcome=st.sampled_from(Outcome),
    code=st.sampled_from(["", "queue_full", "500"]),
    retry_after_s=st.none() | st.floats(0, 60),
)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    due = draw(st.floats(0, 14))
    reply = draw(REPLIES)
    sent = None if reply.outcome is Outcome.UNSENT else due + draw(st.floats(0, 1))
    return Sample(due, sent, (sent or due) + draw(st.floats(0, 5)), reply)


@given(seen=st.lists(samples(), max_size=60))
@settings(deadline=None)
def test_counts_add_up_and_rates_are_of_answers(seen: list[Sample]) -> None:
    found = summarise(Open(5), Record(TIMING, seen), Slo(1.0))
    counts = found.counts
    assert counts.due == sum(2 <= sample.due < 12 for sample in seen)
    assert counts.due == (
        counts.in_time + counts.late + sum(counts.refused.values()) + sum(counts.failed.values())
        + counts.broken + counts.unreachable + counts.timed_out + counts.unsent
    )  # fmt: skip
    answered = [sample for sample in seen if sample.answered]
    assert found.answered_per_s * 10 == pytest.approx(sum(2 <= s.ended < 12 for s in answered))
    assert found.goodput_per_s <= found.answered_per_s
    if found.latency:
        low, high = found.latency.p95_interval
        assert low <= found.latency.p95_s <= high
    assert (found.latency is None) == (counts.answered == 0)
    if found.held:
        assert counts.answered >= 0.99 * counts.due > 0
    assert line(found)
    assert row(found)["due"] == counts.due


def answers(count: int, latency_s: float) -> list[Sample]:
    return [
        Sample(2 + n / 10, 2 + n / 10, 2 + n / 10 + latency_s, Reply(Outcome.ANSWERED))
        for n in range(count)
    ]


def test_a_generator_without_a_core_left_says_so() -> None:
    seen = answers(50, 0.2)
    assert not summarise(Closed(2), Record(TIMING, seen, [], 0.5), Slo(1.0)).generator_limit
    busy = summarise(Closed(2), Record(TIMING, seen, [], 0.97), Slo(1.0))
    assert "97%" in busy.generator_limit


def test_a_late_loop_matters_beside_fast_answers_alone() -> None:
    late = [0.03] * 20
    fast = summarise(Closed(2), Record(TIMING, answers(50, 0.1), late), Slo(1.0))
    slow = summarise(Closed(2), Record(TIMING, answers(50, 2.0), late), Slo(5.0))
    assert "late" in fast.generator_limit
    assert not slow.generator_limit


def test_nothing_sent_is_nothing_held() -> None:
    found = summarise(Closed(2), Record(TIMING), Slo(1.0))
    assert not found.held
    assert found.failed_share == 1
