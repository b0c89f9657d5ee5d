"""What a decision costs with 10,000 pages waiting: microseconds of CPU, mean of many.

    make figure NAME=admission

`admit`: a page is booked and put in line. `give_up`: one of those leaves the line. `refuse`: a
request is told when to come back. `settle`: a page leaves the engine, and its caller's turns move
by what it cost. `next`: the next page is started and another called. `ready`: that one is prepared
and waits. For one tenant, and for a thousand.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import TypeVar

from hunyuan_ocr.traffic.admission import Admission
from hunyuan_ocr.traffic.classes import ClassPolicy, Priority
from hunyuan_ocr.traffic.cost import CostModel, Price, Speed
from hunyuan_ocr.traffic.tickets import Asked, Moves, Refusal, Ticket

T = TypeVar("T")

_WAITING = 10_000
_DECISIONS = 5_000
_REPEATS = 5
_SPEED = Speed(0.02, 20e-6, 0.02, 0.0024, contention=0.05)
_POLICY = ClassPolicy(share=0.33, max_queue_s=1e6, timeout_s=1e6)


class Bench:
    """An admission with pages of many sizes waiting; `seconds` by what was done."""

    def __init__(self, tenants: int) -> None:
        self._rng = Random(1)
        self._tenants = tenants
        self._now = 0.0
        self._admission = Admission(
            CostModel(_SPEED, slot_tokens=2048),
            dict.fromkeys(Priority, _POLICY),
            limit_slots=16,
            reserved_slots=4,
            pages_ahead=4,
            rng=self._rng,
        )
        for _ in range(_WAITING):
            self._admit(self._asked(self._rng.uniform(1e5, 2e5)))
        self._running: list[Ticket] = []
        self._take_turns()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def round(self) -> None:
        """Each decision once; the queue stays as long as it is."""
        new, late = self._asked(self._rng.uniform(1e5, 2e5)), self._asked(0.1)
        ticket = self._timed("admit", lambda: self._admit(new))
        self._timed("give_up", lambda: self._admission.leave(self._now, ticket))
        refusal = self._timed("refuse", lambda: self._admission.submit(self._now, late))
        assert isinstance(refusal, Refusal)
        self._now += 0.01
        self._admit(new)
        ended = self._running.pop(0)
        self._timed("settle", lambda: self._admission.leave(self._now, ended))
        moves = self._timed("next", lambda: self._admission.advance(self._now))
        assert (len(moves.started), len(moves.called)) == (1, 1)
        self._running += moves.started
        self._timed("ready", lambda: self._make_ready(moves.called[0]))

    def _timed(self, name: str, act: Callable[[], T]) -> T:
        started = time.perf_counter()
        result = act()
        self.seconds[name] += time.perf_counter() - started
        return result

    def _asked(self, time_s: float) -> Asked:
        alone_s = self._rng.uniform(0.1, 2.0)
        tenant = str(self._rng.randrange(self._tenants))
        return Asked(Priority.STANDARD, tenant, self._now + time_s, (Price(1, alone_s, alone_s),))

    def _admit(self, asked: Asked) -> Ticket:
        tickets = self._admission.submit(self._now, asked)
        assert not isinstance(tickets, Refusal)
        self._admission.join(tickets[0])
        return tickets[0]

    def _make_ready(self, called: Ticket) -> Moves:
        self._admission.make_ready(called)
        return self._admission.advance(self._now)

    def _take_turns(self) -> None:
        while True:
            moves = self._admission.advance(self._now)
            self._running += moves.started
            for ticket in moves.called:
                self._admission.make_ready(ticket)
            if not moves.called and not moves.started:
                return


def main() -> None:
    figure = {}
    for tenants in (1, 1000):
        bench = Bench(tenants)
        best_s: dict[str, float] = {}
        for _ in range(_REPEATS):  # what else runs on the machine only adds
            bench.seconds.clear()
            for _ in range(_DECISIONS):
                bench.round()
            best_s = {name: min(s, best_s.get(name, s)) for name, s in bench.seconds.items()}
        figure[f"{tenants}_tenants"] = {
            f"{name}_us": round(seconds / _DECISIONS * 1e6, 1) for name, seconds in best_s.items()
        }
    print(json.dumps(figure))


if __name__ == "__main__":
    main()
