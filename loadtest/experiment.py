"""One deployment under one kind of load after another, each a step with its figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TextIO

from loadtest.generator import Send, Timing, run_step
from loadtest.gpu import Watch
from loadtest.outcomes import Sample
from loadtest.schedule import Load
from loadtest.slo import Slo
from loadtest.step import Step, summarise


@dataclass(frozen=True, slots=True)
class Conditions:
    """What all steps share."""

    timing: Timing
    slo: Slo
    in_flight_max: int = 1000


@dataclass(frozen=True, slots=True)
class Experiment:
    """`began` and `ended` hear of every step; requests are written to `log` as JSON lines."""

    send: Send
    conditions: Conditions
    watch: Watch
    log: TextIO | None = None
    began: Callable[[Load], None] = lambda _: None
    ended: Callable[[Step], None] = lambda _: None

    async def measure(self, load: Load, number: int) -> Step:
        """One step; `number` also seeds its schedule."""
        shared = self.conditions
        self.began(load)
        self.watch.begin()
        record = await run_step(
            self.send, load, shared.timing, in_flight_max=shared.in_flight_max, seed=number
        )
        for sample in record.samples if self.log else ():
            print(_line(number, load, sample), file=self.log)
        step = summarise(load, record, shared.slo, self.watch.highest())
        self.ended(step)
        return step


def _line(number: int, load: Load, sample: Sample) -> str:
    return json.dumps({"step": number, "level": load.level, **asdict(sample)})
