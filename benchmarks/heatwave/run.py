"""A heat wave over the simulated card and service, second by second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.heatwave.card import Card, CardParameters, Sample
from benchmarks.heatwave.service import Guard, Load, Service
from benchmarks.heatwave.waves import BEGIN_S, Wave
from hunyuan_ocr.traffic.breaker_states import State, Transition
from hunyuan_ocr.traffic.thermal import RTX_4090_D

_STEPS_A_SECOND = 10
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Second:
    """What was seen at the end of a second; `sample` is what the probe would have written."""

    at: float
    temperature_c: float
    clock: float
    factor: float
    state: State
    answered: int
    above_slowdown_s: float
    sample: Sample

    @property
    def has_cooled(self) -> bool:
        return self.clock == 1 and (self.sample.slowdown_in_c or 0) >= RTX_4090_D.clear_within_c


@dataclass(frozen=True, slots=True)
class Run:
    wave: Wave
    seconds: Sequence[Second]
    transitions: Sequence[Transition]
    shutdowns: int

    @property
    def goodput(self) -> float:
        """Pages answered in time a second, from the wave's begin until ten minutes after it."""
        counted = [s.answered for s in self.seconds if s.at > BEGIN_S]
        return sum(counted) / len(counted)

    @property
    def hottest_c(self) -> float:
        return max(s.temperature_c for s in self.seconds)

    @property
    def above_slowdown_s(self) -> float:
        return sum(s.above_slowdown_s for s in self.seconds)

    @property
    def opens(self) -> int:
        """Full openings: from closed."""
        return sum(t.before is State.CLOSED for t in self.transitions)

    @property
    def transitions_a_minute(self) -> int:
        """The most within any 60 s."""
        times = [t.at for t in self.transitions]
        return max((sum(at <= t < at + _MINUTE_S for t in times) for at in times), default=0)

    @property
    def least_factor(self) -> float:
        return min(s.factor for s in self.seconds)

    @property
    def recovery_s(self) -> float:
        """From the first second after the wave in which the card has cooled, to the last in which
        less than all was let in; 0 where nothing was held back then."""
        after = [s for s in self.seconds if s.at >= self.wave.end_s]
        cooled = next((s.at for s in after if s.has_cooled), after[-1].at)
        held = [s.at for s in after if s.state is not State.CLOSED or s.factor < 1]
        return max(0.0, max(held, default=cooled) - cooled)


def run(
    wave: Wave,
    *,
    guarded: bool,
    parameters: CardParameters | None = None,
    load: Load | None = None,
    seed: int = 1,
) -> Run:
    rng = Random(seed)
    card = Card(parameters or CardParameters(), wave.inlet_c(0.0), Random(rng.random()))
    guard = Guard() if guarded else None
    service = Service(load or Load(), guard, Random(rng.random()))
    seconds, shutdowns = [], 0
    step_s = 1 / _STEPS_A_SECOND
    for second in range(int(wave.until_s)):
        answered, above_s = service.answered, 0.0
        for step in range(_STEPS_A_SECOND):
            at, was_lost = second + step * step_s, card.lost
            service.advance(at, step_s, None if was_lost else card.clock)
            card.advance(step_s, service.work, inlet_c=wave.inlet_c(at), airflow=wave.airflow(at))
            above_s += step_s * (card.die_c >= card.parameters.slowdown_c)
            shutdowns += card.lost and not was_lost
        now, sample = second + 1.0, card.sample()
        if guard is not None:
            guard.hear(now, sample)
        seconds.append(
            Second(
                now,
                card.die_c,
                card.clock,
                1.0 if guard is None else guard.assessment.factor,
                State.CLOSED if guard is None else guard.breaker.advance(now),
                service.answered - answered,
                above_s,
                sample,
            )
        )
    return Run(wave, seconds, [] if guard is None else guard.transitions, shutdowns)
