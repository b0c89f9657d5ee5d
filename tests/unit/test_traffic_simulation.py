"""What the traffic classes promise, kept against a simulated card in short runs.

The figures `goodput` and `fairness` measure the same for longer and beside other gateways.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.simulator.parameters import RTX_4090_D, SidecarParameters
from benchmarks.simulator.run import Outcome, Scenario, percentile, run
from benchmarks.simulator.scenarios import (
    MODEST,
    capacity,
    overload,
    quickness,
    shares,
    source,
    storm,
)
from benchmarks.simulator.workload import KINDS, Source, steady
from hunyuan_ocr.traffic.classes import Priority


def test_the_simulated_card_gives_the_published_rates() -> None:
    """13 pages/s at 8 in flight (620 ms), 22 at 16, 26 at 32: within a fifth."""
    rates = {n: capacity(replace(RTX_4090_D, sidecar=_slots(n))) for n in (8, 16, 32)}
    assert rates[8] == pytest.approx(13, rel=0.2)
    assert rates[16] == pytest.approx(22, rel=0.2)
    assert rates[32] == pytest.approx(26, rel=0.2)


def _slots(count: int) -> SidecarParameters:
    return SidecarParameters(limit_slots=count, floor_slots=count)


@pytest.fixture(scope="module")
def flooded() -> Outcome:
    return overload("ours", 10.0, measured_s=60.0)


def test_ten_times_the_load_gets_as_many_answers_in_time(flooded: Outcome) -> None:
    assert flooded.goodput >= 0.95 * overload("ours", 1.5, measured_s=60.0).goodput


def test_answers_are_quick_and_refusals_quicker_at_ten_times_the_load(flooded: Outcome) -> None:
    assert percentile(flooded.latencies_s(Priority.INTERACTIVE), 0.95) < 4
    assert percentile(flooded.refusal_s(), 0.99) < 0.005
    assert all(r.outcome in ("answered", "refused", "") for r in flooded.attempts)


def test_pages_of_all_sizes_are_refused_alike(flooded: Outcome) -> None:
    served = [sum(r.kind is kind for r in flooded.answered) for kind in KINDS]
    for kind, count in zip(KINDS, served, strict=True):
        assert count / sum(served) == pytest.approx(kind.weight, abs=0.06)


def test_a_flood_of_batch_costs_interactive_pages_less_than_one_page() -> None:
    quick = quickness("ours", measured_s=120.0)
    assert quick.extra_pages <= 1
    assert quick.batch_share > 0.2


def test_a_greedy_tenant_gets_its_share() -> None:
    got = shares("ours")
    assert got.greedy_excess <= 0.1
    fair = sum(got.by_tenant.values()) / len(got.by_tenant)
    assert all(got.by_tenant[name] >= 0.9 * fair for name in MODEST)


def test_batch_keeps_five_percent_beside_an_interactive_flood() -> None:
    full = capacity()
    sources = [source(Priority.INTERACTIVE, 5 * full), source(Priority.BATCH, full)]
    outcome = run(Scenario(sources, measured_s=120.0))
    batch = sum(r.priority is Priority.BATCH for r in outcome.answered)
    assert batch / len(outcome.answered) >= 0.045


def test_a_storm_that_honours_retry_after_is_over_within_thirty_seconds() -> None:
    over = storm("ours", "honour")
    assert over.last_retry_after_s <= 30
    assert over.attempts_per_answer < 1.6


def test_a_slow_card_still_answers_in_time_what_it_can() -> None:
    """Slower than when it was calibrated: predictions follow, and little is promised in vain."""
    rate, slower = capacity(), 3.0
    sources = [Source(Priority.INTERACTIVE, 30.0, steady(rate), rate)]
    outcome = run(Scenario(sources, slower_later=slower, warm_up_s=60.0, measured_s=90.0))
    assert outcome.goodput >= 0.6 * rate / slower
    assert percentile(outcome.latencies_s(Priority.INTERACTIVE), 0.95) < 15
    ends = [r.outcome for r in outcome.attempts]
    assert ends.count("timed out") <= 0.02 * len(ends)
