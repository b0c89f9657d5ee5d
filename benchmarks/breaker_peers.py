"""Public circuit breakers and ours in the same situations of an asynchronous service.

make figure NAME=breaker-peers

Each breaker opens after five failures and tries again after 0.2 s; what a situation asks of it is
its `right`. The peers are used as their documentation shows for coroutines. Last line: one JSON
object, `table`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from random import Random
from time import monotonic
from typing import Any, Protocol

import aiobreaker
import circuitbreaker
import pybreaker
from purgatory import AsyncCircuitBreakerFactory
from purgatory.domain.model import OpenedState
from rich.console import Console
from rich.table import Table

from hunyuan_ocr.traffic.breaker import Breaker
from hunyuan_ocr.traffic.breaker_states import BreakerOptions, Outcome, State

FAILURES = 5
COOL_DOWN_S = 0.2
PROBES = 3
HEALTHY_S = 0.001
OK, UNAVAILABLE = 200, 503

Work = Callable[[], Awaitable[int]]


class Refused(Exception):
    """The breaker did not let the call through."""


class EngineFailed(Exception):
    """What a breaker is there for."""


class PageAtFault(Exception):
    """A broken image: says nothing of the engine."""


class Subject(Protocol):
    """A breaker around calls. `call` raises Refused, or what the work raises."""

    async def call(self, work: Work) -> None: ...
    @property
    def is_open(self) -> bool: ...


class Ours:
    def __init__(self) -> None:
        options = BreakerOptions(min_outcomes=FAILURES, cool_down_s=COOL_DOWN_S, probes=PROBES)
        self._breaker = Breaker(options)

    async def call(self, work: Work) -> None:
        permit = self._breaker.acquire(monotonic())
        if permit is None:
            raise Refused
        with permit:
            begun = monotonic()
            try:
                status = await work()
            except EngineFailed:
                permit.settle(monotonic(), Outcome.FAILURE)
                raise
            # The service judges by its reference model; here the reference is one number.
            slow = monotonic() - begun > 20 * HEALTHY_S
            outcome = Outcome.OK if status == OK else Outcome.FAILURE
            permit.settle(monotonic(), outcome, slow=slow)

    @property
    def is_open(self) -> bool:
        return self._breaker.state is State.OPEN


class CircuitBreakerPeer:
    def __init__(self) -> None:
        self._breaker = circuitbreaker.CircuitBreaker(
            failure_threshold=FAILURES,
            recovery_timeout=COOL_DOWN_S,
            expected_exception=EngineFailed,
            name="figure",
        )

    async def call(self, work: Work) -> None:
        async def decorated() -> int:
            return await work()

        try:
            await self._breaker(decorated)()
        except circuitbreaker.CircuitBreakerError as refused:
            raise Refused from refused

    @property
    def is_open(self) -> bool:
        return bool(self._breaker.opened)


class AiobreakerPeer:
    def __init__(self) -> None:
        self._breaker = aiobreaker.CircuitBreaker(
            fail_max=FAILURES,
            timeout_duration=timedelta(seconds=COOL_DOWN_S),
            exclude=[PageAtFault],
        )

    async def call(self, work: Work) -> None:
        try:
            await self._breaker.call_async(work)
        except aiobreaker.CircuitBreakerError as refused:
            raise Refused from refused

    @property
    def is_open(self) -> bool:
        return bool(self._breaker.current_state == aiobreaker.CircuitBreakerState.OPEN)


class PurgatoryPeer:
    def __init__(self) -> None:
        self._factory = AsyncCircuitBreakerFactory(
            default_threshold=FAILURES, default_ttl=COOL_DOWN_S, exclude=[PageAtFault]
        )
        self._breaker: Any = None

    async def call(self, work: Work) -> None:
        self._breaker = await self._factory.get_breaker("engine")
        try:
            async with self._breaker:
                await work()
        except OpenedState as refused:
            raise Refused from refused

    @property
    def is_open(self) -> bool:
        return bool(self._breaker.context.state == "opened")


class PybreakerPeer:
    def __init__(self) -> None:
        self._breaker = pybreaker.CircuitBreaker(
            fail_max=FAILURES, reset_timeout=COOL_DOWN_S, exclude=[PageAtFault]
        )

    async def call(self, work: Work) -> None:
        try:
            await self._breaker.call(work)
        except pybreaker.CircuitBreakerError as refused:
            raise Refused from refused

    @property
    def is_open(self) -> bool:
        return bool(self._breaker.current_state == pybreaker.STATE_OPEN)


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "ours": Ours,
    "circuitbreaker": CircuitBreakerPeer,
    "aiobreaker": AiobreakerPeer,
    "purgatory": PurgatoryPeer,
    "pybreaker": PybreakerPeer,
}


class Engine:
    """What stands behind the breaker; counts the calls that reach it."""

    def __init__(self) -> None:
        self.reached = 0

    def work(
        self, *, error: type[Exception] | None = None, status: int = OK, takes_s: float = HEALTHY_S
    ) -> Work:
        async def read() -> int:
            self.reached += 1
            await asyncio.sleep(takes_s)
            if error is not None:
                raise error
            return status

        return read

    @property
    def failing(self) -> Work:
        return self.work(error=EngineFailed)


async def _try(subject: Subject, work: Work) -> None:
    with suppress(Refused, EngineFailed, PageAtFault):
        await subject.call(work)


async def _cancelled(subject: Subject, engine: Engine) -> None:
    """A call whose client leaves while it is in the engine."""
    task = asyncio.ensure_future(_try(subject, engine.work(takes_s=1.0)))
    await asyncio.sleep(HEALTHY_S)
    task.cancel()
    await asyncio.wait([task])


async def _opened(subject: Subject, engine: Engine) -> None:
    """Fail until it is open, then wait until it would try again."""
    for _ in range(2 * FAILURES):
        await _try(subject, engine.failing)
    await asyncio.sleep(1.2 * COOL_DOWN_S)
    engine.reached = 0


async def outage(subject: Subject, engine: Engine) -> bool:
    for _ in range(20):
        await _try(subject, engine.failing)
    return subject.is_open and engine.reached == FAILURES


async def outage_among_cancels(subject: Subject, engine: Engine) -> bool:
    for _ in range(10):
        await _try(subject, engine.failing)
        await _cancelled(subject, engine)
    return subject.is_open


async def cancels_alone(subject: Subject, engine: Engine) -> bool:
    for _ in range(20):
        await _cancelled(subject, engine)
    return not subject.is_open


async def outage_among_bad_pages(subject: Subject, engine: Engine) -> bool:
    for _ in range(10):
        await _try(subject, engine.failing)
        await _try(subject, engine.work(error=PageAtFault))
    return subject.is_open


async def half_fail(subject: Subject, engine: Engine) -> bool:
    rng = Random(1)
    for _ in range(40):
        await _try(subject, engine.failing if rng.random() < 0.5 else engine.work())
    return engine.reached < 40


async def failures_as_results(subject: Subject, engine: Engine) -> bool:
    for _ in range(20):
        await _try(subject, engine.work(status=UNAVAILABLE))
    return subject.is_open


async def slow_calls(subject: Subject, engine: Engine) -> bool:
    for _ in range(10):
        await _try(subject, engine.work(takes_s=30 * HEALTHY_S))
    return subject.is_open


async def half_open_flood(subject: Subject, engine: Engine) -> bool:
    await _opened(subject, engine)
    await asyncio.gather(*(_try(subject, engine.failing) for _ in range(100)))
    return 0 < engine.reached <= PROBES


async def cancelled_probe(subject: Subject, engine: Engine) -> bool:
    await _opened(subject, engine)
    await _cancelled(subject, engine)
    engine.reached = 0
    await asyncio.gather(*(_try(subject, engine.failing) for _ in range(100)))
    return 0 < engine.reached <= PROBES


async def recovery(subject: Subject, engine: Engine) -> bool:
    await _opened(subject, engine)
    for _ in range(20):
        await _try(subject, engine.work())
    return not subject.is_open and engine.reached == 20


@dataclass(frozen=True, slots=True)
class Situation:
    right: str
    happens: Callable[[Subject, Engine], Awaitable[bool]]


SITUATIONS = {
    "every call fails": Situation("opens after five", outage),
    "every call that is not cancelled fails": Situation("opens", outage_among_cancels),
    "clients cancel, the engine is well": Situation("stays closed", cancels_alone),
    "failures among pages at fault": Situation("opens", outage_among_bad_pages),
    "half of the calls fail": Situation("opens", half_fail),
    "failures are results, not exceptions": Situation("opens", failures_as_results),
    "calls succeed, 30 times as slow": Situation("opens", slow_calls),
    "100 calls at once when half-open": Situation("at most three get through", half_open_flood),
    "the probe is cancelled, then 100 calls": Situation(
        "at most three get through", cancelled_probe
    ),
    "the engine is well again": Situation("closes", recovery),
}


async def judged(situation: Situation) -> dict[str, dict[str, Any]]:
    verdicts = {}
    for name, subject in SUBJECTS.items():
        engine = Engine()
        is_right = await situation.happens(subject(), engine)
        verdicts[name] = {"right": is_right, "reached": engine.reached}
    return verdicts


def main() -> None:
    versions = {name: name if name == "ours" else f"{name} {version(name)}" for name in SUBJECTS}
    shown = Table("situation", "right", *versions.values())
    rows: list[dict[str, Any]] = []
    for name, situation in SITUATIONS.items():
        verdicts = asyncio.run(judged(situation))
        rows.append({"situation": name, "right": situation.right, "breakers": verdicts})
        shown.add_row(name, situation.right, *_cells(list(verdicts.values())))
    Console(width=150).print(shown)
    print("the number is of calls that reached the engine")
    print(json.dumps({"table": rows}))


def _cells(verdicts: Sequence[dict[str, Any]]) -> list[str]:
    return [f"{'yes' if v['right'] else 'NO'} ({v['reached']})" for v in verdicts]


if __name__ == "__main__":
    main()
