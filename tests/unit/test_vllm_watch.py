"""When is an engine so dead that it must be restarted? The real watch, on a clock of our own."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import aiohttp
import pytest

from hunyuan_ocr.engines.isolation import IsolationReport, Verdict
from hunyuan_ocr.engines.vllm_http import VllmHttp
from hunyuan_ocr.engines.vllm_watch import EngineWatch
from hunyuan_ocr.errors import Unavailable

LIMIT_S = 60.0
# What kubelet adds: two probes that fail, and the grace of the kill.
PROBE_PERIOD_S, PROBES, GRACE_S = 5.0, 2, 10.0
RESTARTED_WITHIN_S = 90.0
METRICS = """
process_start_time_seconds {start}
vllm:num_requests_running {running}
vllm:num_requests_waiting 0
vllm:iteration_tokens_total_count {steps}
vllm:num_preemptions_total {preemptions}
"""


class VirtualSelector(selectors.SelectSelector):
    """Nothing ready? Then the next timer is due at once."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for ever"
            self.now_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Hours pass in a moment, and the same way every time."""

    def __init__(self) -> None:
        self._virtual = VirtualSelector()
        super().__init__(self._virtual)
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._virtual.now_s


Body = Callable[["Bench"], Coroutine[Any, Any, None]]


def virtual(body: Body) -> Callable[[], None]:
    """A test that runs in virtual time."""

    def test() -> None:
        loop = VirtualLoop()
        try:
            loop.run_until_complete(_on_bench(body))
        finally:
            loop.close()

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


async def _on_bench(body: Body) -> None:
    bench = Bench()
    bench.watch.start()
    try:
        await body(bench)
    finally:
        await bench.watch.close()


@dataclass
class FakeEngine:
    """vLLM as its HTTP interface shows it; tests change it while it runs."""

    condition: Literal["refuses", "silent", "unhealthy", "up"] = "up"
    core: Literal["steps", "stopped"] = "steps"
    start: int = 1
    steps: int = 0
    preemptions: int = 0
    running: int = 0
    waiting: int = 0  # posts of ours
    asked: int = 0
    base_url: str = "http://engine"
    pending: list[asyncio.Future[None]] = field(default_factory=list)

    async def get(self, path: str) -> str:
        if self.condition == "refuses":
            raise aiohttp.ClientConnectionError
        if self.condition == "silent":
            await asyncio.sleep(3600)
        if self.condition == "unhealthy" and path == "/health":
            raise aiohttp.ClientPayloadError
        if path == "/v1/models":
            return '{"data": [{"id": "m", "max_model_len": 8192}]}'
        return METRICS.format(
            start=self.start,
            running=self.running,
            steps=self.steps,
            preemptions=self.preemptions,
        )

    async def ask(self, path: str, body: Mapping[str, object]) -> None:
        self.asked += 1
        await self.work()

    async def work(self) -> None:
        """A request that takes one step."""
        while self.core == "stopped":
            await asyncio.sleep(0.1)
        self.steps += 1

    def abort(self, reason: Unavailable) -> None:
        self.waiting = 0


class Bench:
    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.verdict: Verdict = "isolated"
        self.preempted = 0
        self.watch = EngineWatch(
            cast("VllmHttp", self.engine),
            self.self_test,
            hung_after_s=10.0,
            enforce_isolation=True,
            context_needed=100,
            clock=asyncio.get_running_loop().time,
            on_preemption=self.count_preemption,
        )

    def count_preemption(self) -> None:
        self.preempted += 1

    async def self_test(self) -> IsolationReport:
        self.engine.waiting += 1
        try:
            await self.engine.work()
        finally:
            self.engine.waiting = 0
        return IsolationReport(self.verdict, 4, 0, 1.0, 0.1, "")

    @property
    def dead(self) -> bool:
        return self.watch.health().dead_for_s >= LIMIT_S

    async def never_dead(self, for_s: float) -> None:
        for _ in range(int(for_s * 10)):
            assert not self.dead
            await asyncio.sleep(0.1)

    async def seconds_until_dead(self) -> float:
        for tenths in range(2000):
            if self.dead:
                return tenths / 10
            await asyncio.sleep(0.1)
        raise AssertionError("never dead")

    async def in_service(self) -> None:
        while self.watch.refusal is not None:
            await asyncio.sleep(0.1)


def restarted_by(dead_s: float) -> float:
    return dead_s + PROBES * PROBE_PERIOD_S + GRACE_S


@virtual
async def test_one_that_starts_for_an_hour_is_left_alone(bench: Bench) -> None:
    bench.engine.condition = "refuses"
    await bench.never_dead(3600)
    assert not bench.watch.health().answers
    assert bench.watch.health().reason
    bench.engine.condition = "up"
    await bench.in_service()
    assert bench.watch.health().answers


@virtual
async def test_preemptions_are_heard_of_and_those_of_another_process_are_not(bench: Bench) -> None:
    await asyncio.sleep(5)
    assert bench.preempted == 0
    bench.engine.preemptions = 3
    await asyncio.sleep(5)
    assert bench.preempted == 1
    bench.engine.start, bench.engine.preemptions = 2, 5
    await asyncio.sleep(5)
    assert bench.preempted == 1


@virtual
async def test_one_that_idles_is_left_alone_and_not_asked(bench: Bench) -> None:
    await bench.in_service()
    asked = bench.engine.asked
    await bench.never_dead(3600)
    assert bench.engine.asked == asked


@virtual
async def test_one_that_is_busy_with_long_steps_is_left_alone(bench: Bench) -> None:
    await bench.in_service()
    for _ in range(20):
        bench.engine.core, bench.engine.running, bench.engine.waiting = "stopped", 16, 16
        await bench.never_dead(55)  # a compilation
        bench.engine.core = "steps"
        await bench.in_service()


@virtual
async def test_one_that_leaks_is_refused_but_not_restarted(bench: Bench) -> None:
    bench.verdict = "leaking"
    await bench.never_dead(600)
    assert bench.watch.refusal is not None
    assert bench.watch.health().answers


@pytest.mark.parametrize("counted", [16, 0], ids=["while busy", "while idle"])
def test_one_that_hangs_with_work_waiting_is_restarted(counted: int) -> None:
    """A core that hung while idle has counted none of the work that waits for it."""

    @virtual
    async def test(bench: Bench) -> None:
        await bench.in_service()
        await bench.never_dead(30)
        bench.engine.core, bench.engine.running, bench.engine.waiting = "stopped", counted, 16
        dead_s = await bench.seconds_until_dead()
        assert dead_s >= LIMIT_S - 2
        assert restarted_by(dead_s) <= RESTARTED_WITHIN_S
        assert "hangs" in bench.watch.health().reason
        assert bench.watch.health().answers

    test()


@virtual
async def test_one_that_goes_on_shows_it_by_the_token_it_is_asked_for(bench: Bench) -> None:
    await bench.in_service()
    bench.engine.core, bench.engine.waiting = "stopped", 16
    asked = bench.engine.asked
    await bench.seconds_until_dead()
    assert bench.engine.asked > asked
    bench.engine.core = "steps"
    await asyncio.sleep(3)
    assert (bench.watch.refusal, bench.watch.health().dead_for_s) == (None, 0)
    await bench.never_dead(600)


@virtual
async def test_one_that_hangs_when_the_watch_begins_is_restarted(bench: Bench) -> None:
    """The service was restarted meanwhile: its self-test is the work that waits."""
    bench.engine.core = "stopped"
    dead_s = await bench.seconds_until_dead()
    assert restarted_by(dead_s) <= RESTARTED_WITHIN_S
    bench.engine.core = "steps"
    await bench.in_service()
    await bench.never_dead(60)


@pytest.mark.parametrize("how", ["refuses", "silent", "unhealthy"])
def test_one_that_dies_is_restarted_and_its_successor_left_alone(
    how: Literal["refuses", "silent", "unhealthy"],
) -> None:
    @virtual
    async def test(bench: Bench) -> None:
        await bench.in_service()
        bench.engine.condition = how
        dead_s = await bench.seconds_until_dead()
        assert dead_s >= LIMIT_S - 2
        assert restarted_by(dead_s) <= RESTARTED_WITHIN_S
        assert not bench.watch.health().answers
        bench.engine.condition, bench.engine.start = "up", 2
        await bench.in_service()
        await bench.never_dead(60)

    test()
