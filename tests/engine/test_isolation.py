"""The self-test against real engines: the leaking one is caught, the others are cleared."""

from __future__ import annotations

from tests.engine.conftest import Engine
from tests.engine.vllm_client import connect

RUNS = 10  # a verdict that comes nine times in ten is no verdict
LIMIT_S = 10.0


async def test_the_engine_under_test_is_isolated(native_engine: Engine) -> None:
    async with connect(native_engine.url) as client:
        for _ in range(RUNS):
            report = await client.isolation()
            assert report.verdict == "isolated", report
            assert (report.foreign, report.own_ratio >= 0.99) == (0, True), report
            assert report.seconds <= LIMIT_S, report


class TestAsShipped:
    async def test_the_leak_is_seen_every_time(self, leaking_engine: Engine) -> None:
        async with connect(leaking_engine.url) as client:
            for _ in range(RUNS):
                report = await client.isolation()
                assert report.verdict == "leaking", report
                assert report.foreign > 0, report
                assert report.seconds <= LIMIT_S, report

    async def test_it_is_never_cleared_for_want_of_company(self, leaking_engine: Engine) -> None:
        async with connect(leaking_engine.url) as client:
            for _ in range(5):
                report = await client.isolation(concurrency=2)
                assert report.verdict != "isolated", report


class TestPatched:
    async def test_the_plugin_ends_the_leak(self, patched_engine: Engine) -> None:
        async with connect(patched_engine.url) as client:
            for _ in range(RUNS):
                report = await client.isolation()
                assert report.verdict == "isolated", report
                assert report.seconds <= LIMIT_S, report


class TestOneAtATime:
    async def test_an_engine_that_never_shares_a_step_proves_nothing(
        self, serial_engine: Engine
    ) -> None:
        async with connect(serial_engine.url) as client:
            report = await client.isolation()
            assert report.verdict == "inconclusive", report
            assert "encoder step" in report.detail
