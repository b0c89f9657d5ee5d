"""Heat waves over a simulated card: what the policy and the breaker promise in docs/heatwave.md."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.heatwave.run import run
from benchmarks.heatwave.script import samples
from benchmarks.heatwave.waves import AT_TARGET, BLIP, MILD, SEVERE, SEVEREST, Wave
from hunyuan_ocr.traffic.breaker_states import State

# Ten minutes of each are enough to be at its worst; recovery is looked at apart.
SHORT_S = 900.0


def short(wave: Wave) -> Wave:
    return replace(wave, until_s=SHORT_S)


def test_a_card_in_health_at_its_target_is_left_alone() -> None:
    done = run(short(AT_TARGET), guarded=True)
    held = [s for s in done.seconds if s.sample.reasons]
    assert len(held) > SHORT_S / 4
    assert max(s.sample.temperature_c or 0 for s in held) >= 83
    assert done.least_factor == 1.0
    assert not done.transitions


def test_software_throttling_costs_nothing() -> None:
    ours, without = (run(short(MILD), guarded=guarded) for guarded in (True, False))
    assert min(s.clock for s in ours.seconds) < 0.9
    assert ours.goodput >= 0.95 * without.goodput
    assert not ours.transitions


@pytest.mark.parametrize("wave", [SEVERE, SEVEREST])
def test_never_above_the_slowdown_threshold(wave: Wave) -> None:
    """Though without policy and breaker it would be for minutes."""
    ours, without = (run(short(wave), guarded=guarded) for guarded in (True, False))
    assert ours.above_slowdown_s == 0
    assert without.above_slowdown_s > 60
    assert ours.opens <= 1
    assert ours.transitions_a_minute <= 2


def test_the_card_is_saved_from_shutting_down() -> None:
    assert run(short(SEVEREST), guarded=False).shutdowns > 0
    assert run(short(SEVEREST), guarded=True).shutdowns == 0


def test_recovers_within_a_minute_of_cooling() -> None:
    wave = replace(SEVEREST, end_s=SHORT_S, until_s=SHORT_S + 300)
    wave = replace(wave, airflow=lambda t: 0.0 if 300 <= t < SHORT_S else 1.0)
    wave = replace(wave, inlet_c=lambda t: 48.0 if 300 <= t < SHORT_S else 28.0)
    done = run(wave, guarded=True)
    assert done.opens == 1
    assert done.seconds[-1].state is State.CLOSED
    assert done.recovery_s <= 60


def test_a_blip_is_not_noticed() -> None:
    done = run(replace(BLIP, until_s=600.0), guarded=True)
    assert done.least_factor == 1.0
    assert not done.transitions


def test_a_wave_can_be_played_as_a_script() -> None:
    script = list(samples(short(SEVERE), guarded=False))
    assert [at for at, _ in script] == [float(n) for n in range(1, int(SHORT_S) + 1)]
    assert any("hardware_thermal" in sample.reasons for _, sample in script)
