"""Servers with and without a knee, by seed, and sweeps of them: for `benchmarks.knee`."""

from __future__ import annotations

import asyncio
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from loadtest import virtual_time
from loadtest.fake_law import Law, SharedServer
from loadtest.generator import Send, Timing, run_step
from loadtest.knee import Knee
from loadtest.outcomes import Outcome, Reply
from loadtest.pages import draw_pages, read_mix
from loadtest.routes import Chat, Route, build
from loadtest.schedule import Load
from loadtest.search import Range
from loadtest.slo import Slo
from loadtest.step import Step, summarise
from loadtest.sweep import Findings, Plan, sweep
from loadtest.target import connected

LAST = 128
# So long that one caller alone gets as many answers in a step.
ANSWERS_ALONE = 60
HTTP_LAST, HTTP_STEP_S = 32, 2.0
_TRUE_MAX = 1000


@dataclass(frozen=True, slots=True)
class Case:
    """A server's law and what is promised of it."""

    seed: int
    law: Law
    slo: Slo

    def timing(self) -> Timing:
        measure_s = ANSWERS_ALONE * self.law.service_s
        return Timing(measure_s / 4, measure_s, 60.0)

    def true_boundary(self) -> int:
        """The most in flight with whom the promise holds."""
        within = (self.law.latency_quantile_s(n, 0.95) <= self.slo.p95_s for n in _levels())
        return max((n for n, held in zip(_levels(), within, strict=True) if held), default=0)


@dataclass(frozen=True, slots=True)
class Found:
    """`knee` None: none was found, for the reason `why`. `slo_steps`: measured levels between the
    boundary found and the true one.
    """

    seed: int
    built_in: float
    knee: float | None
    low: float
    high: float
    why: str
    slo_steps: int

    @property
    def error(self) -> float:
        return 1.0 if self.knee is None else abs(self.knee / self.built_in - 1)


def _levels() -> range:
    return range(1, _TRUE_MAX)


def with_knee(seed: int) -> Case:
    """A knee in the range, with a corner from sharp to round, and a slope on either side."""
    rng = random.Random(seed)
    law = Law(
        service_s=_log_uniform(rng, 0.2, 1.0),
        knee=_log_uniform(rng, 4, 48),
        growth=rng.uniform(0.8, 1.0),
        tail=rng.choice([-0.1, 0.0, 0.1]),
        sharpness=rng.choice([4.0, 8.0, math.inf]),
        cv=rng.uniform(0.1, 0.6),
    )
    return Case(seed, law, _promise(law, rng))


def without_knee(seed: int) -> Case:
    """One power of the load throughout: nearly all of it, part of it, hardly any; or a knee far
    beyond the range.
    """
    rng = random.Random(seed)
    growth = (rng.uniform(0.85, 1.0), rng.uniform(0.45, 0.7), rng.uniform(0.0, 0.2), 1.0)[seed % 4]
    knee = 4.0 * LAST if seed % 4 == 3 else math.inf
    law = Law(_log_uniform(rng, 0.2, 1.0), knee, growth, cv=rng.uniform(0.1, 0.6))
    return Case(seed, law, _promise(law, rng))


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _promise(law: Law, rng: random.Random) -> Slo:
    """A few times what a request alone takes."""
    return Slo(law.latency_quantile_s(1, 0.95) * rng.uniform(1.8, 4.0))


async def _swept(case: Case, send: Send, timing: Timing, plan: Plan) -> Findings:
    found = Findings()

    async def measure(load: Load, number: int) -> Step:
        record = await run_step(send, load, timing, seed=1000 * case.seed + number)
        return summarise(load, record, case.slo)

    await sweep(measure, plan, found)
    return found


def simulated(case: Case) -> Found:
    """A sweep in virtual time."""

    async def swept() -> Findings:
        server = SharedServer(case.law, case.seed)

        async def send() -> Reply:
            await server.work()
            return Reply(Outcome.ANSWERED)

        return await _swept(case, send, case.timing(), Plan(Range(1, LAST), open_shares=()))

    return _judged(case, virtual_time.run(swept()))


def _judged(case: Case, found: Findings) -> Found:
    knee, edge, true = found.knee, found.boundary, case.true_boundary()
    passed = edge.passed or 0.0
    between = {s.level for s in found.steps if min(passed, true) < s.level <= max(passed, true)}
    return Found(
        case.seed,
        case.law.knee,
        knee.load if isinstance(knee, Knee) else None,
        knee.low if isinstance(knee, Knee) else 0.0,
        knee.high if isinstance(knee, Knee) else 0.0,
        "" if isinstance(knee, Knee) else knee.why,
        len(between),
    )


def over_http(case: Case) -> Found:
    """A sweep of the fake server in a process of its own."""

    async def swept(url: str) -> Findings:
        request = build(Route.OCR, draw_pages(read_mix("320x240"), 1)[0], Chat())
        timing = Timing(HTTP_STEP_S / 3, HTTP_STEP_S, 60.0)
        async with connected(url, Route.OCR, [request]) as target:
            plan = Plan(Range(1, HTTP_LAST), repeats=1, open_shares=())
            return await _swept(case, target.send, timing, plan)

    with fake_server(case) as url:
        return _judged(case, asyncio.run(swept(url)))


def http_case(seed: int, growth: float = 1.0, knee: float = math.inf) -> Case:
    law = Law(0.2, knee, growth, cv=0.2)
    return Case(seed, law, Slo(law.latency_quantile_s(1, 0.95) * 2))


@contextmanager
def fake_server(case: Case) -> Iterator[str]:
    """The base URL of a server with the law of `case`."""
    law = [f"--{name.replace('_', '-')}={value}" for name, value in asdict(case.law).items()]
    process = subprocess.Popen(
        [sys.executable, "-m", "loadtest.fake_server", "--port=0", f"--seed={case.seed}", *law],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
