"""Quotas in a real Redis: exact over processes, and converging after it was away."""

from __future__ import annotations

import asyncio
import multiprocessing
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random

import httpx
import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from hunyuan_ocr.api.keys import new_key
from hunyuan_ocr.errors import QuotaExceeded
from hunyuan_ocr.traffic.ratelimit import NO_DEBT, LocalQuotas, Quota, Quotas, RateLimiter
from hunyuan_ocr.traffic.redis_quotas import RedisQuotas
from tests.api.engine_standin import server_before, stand_in
from tests.api.server import Server, free_port
from tests.pictures import jpeg_bytes

# Refilled so slowly that a test sees the burst alone.
TWENTY = Quotas(Quota(per_s=1e-3, burst=20), Quota(per_s=1e-1, burst=1e4))


async def attempt(limiter: RateLimiter, tenant: str = "a") -> bool:
    try:
        await limiter.take(tenant, 1.0)
    except QuotaExceeded:
        return False
    return True


@contextmanager
def redis_server(directory: Path, port: int) -> Iterator[None]:
    binary = shutil.which("redis-server")
    assert binary
    process = subprocess.Popen(
        [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)],
        stdout=subprocess.DEVNULL,
    )
    try:
        while not _listens(port):
            assert process.poll() is None
        yield
    finally:
        process.terminate()
        process.wait(10)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def limiter_on(port: int, quotas: Quotas = TWENTY) -> AsyncIterator[RateLimiter]:
    redis = Redis(port=port, retry=Retry(NoBackoff(), 0))
    loop = asyncio.get_running_loop()
    try:
        shared = RedisQuotas(redis, quotas, timeout_s=5.0)
        yield RateLimiter(quotas, shared, clock=loop.time, rng=Random(1))
    finally:
        await redis.aclose()


def _replica(port: int, attempts: int) -> int:
    """One process: many requests at once; how many were taken."""

    async def work() -> int:
        async with limiter_on(port) as limiter:
            return sum(await asyncio.gather(*(attempt(limiter) for _ in range(attempts))))

    return asyncio.run(work())


def test_exact_over_processes(tmp_path: Path) -> None:
    port = free_port()
    with (
        redis_server(tmp_path, port),
        multiprocessing.get_context("spawn").Pool(3) as pool,
    ):
        assert sum(pool.starmap(_replica, [(port, 40)] * 3)) == 20


async def test_redis_says_what_the_local_quotas_say(tmp_path: Path) -> None:
    port = free_port()
    quotas = Quotas(Quota(0.01, 5), Quota(0.02, 10))
    local = LocalQuotas(quotas)
    rng = Random(1)
    with redis_server(tmp_path, port):
        redis = Redis(port=port)
        shared = RedisQuotas(redis, quotas, timeout_s=5.0)
        for _ in range(200):
            tenant, cost = rng.choice("abc"), rng.choice([0.5, 2.0, 7.0, 25.0])
            got, expected = await shared.take(tenant, cost, NO_DEBT), local.take(0, tenant, cost)
            assert got.taken == expected.taken
            assert got.wait_s == pytest.approx(expected.wait_s, abs=5)
            assert got.debt.cost_s == pytest.approx(expected.debt.cost_s, abs=5)
        assert 0 < await redis.ttl("hunyuan-ocr:quota:a") <= 10_000
        await redis.aclose()


async def test_another_redis_whose_clock_is_behind_locks_nobody_out(tmp_path: Path) -> None:
    port = free_port()
    quotas = Quotas(Quota(per_s=10.0, burst=2), Quota(per_s=1e3, burst=1e4))
    with redis_server(tmp_path, port):
        async with limiter_on(port, quotas) as limiter, Redis(port=port) as redis:
            assert [await attempt(limiter) for _ in range(3)] == [True, True, False]
            hour_ahead = int((time.time() + 3600) * 1e6)
            await redis.hset("hunyuan-ocr:quota:a", "at", hour_ahead)
        async with limiter_on(port, quotas) as other:
            await attempt(other)
            await asyncio.sleep(0.25)
            assert await attempt(other)


async def test_what_is_wrong_with_redis_is_told_once_and_its_recovery_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    with redis_server(tmp_path, port):
        async with limiter_on(port) as limiter, Redis(port=port) as redis:
            await redis.set("hunyuan-ocr:quota:a", "not a hash")
            for _ in range(5):
                assert await attempt(limiter)
            assert limiter.alone()
            assert len(caplog.records) == 1
            assert "WRONGTYPE" in str(caplog.records[0].__dict__["fields"])
            await asyncio.sleep(1.1)
            await limiter.probe()
            assert not limiter.alone()
            assert len(caplog.records) == 2


async def test_replicas_converge_when_redis_is_back(tmp_path: Path) -> None:
    port = free_port()
    async with limiter_on(port) as one, limiter_on(port) as two:
        with redis_server(tmp_path, port):
            assert sum([await attempt(one) for _ in range(5)]) == 5
        assert sum([await attempt(one) for _ in range(10)]) == 10
        assert one.alone()
        with redis_server(tmp_path, port):  # empty: it remembers nothing
            async with asyncio.timeout(10):
                while one.alone():
                    await one.probe()
                    await asyncio.sleep(0.05)
            assert await attempt(one)
            # 16 of 20 are known to all replicas again.
            assert sum([await attempt(two) for _ in range(10)]) == 4


def statuses(key: str, *servers: Server) -> list[int]:
    """What one page each brings from these servers."""
    headers = {"Content-Type": "image/jpeg", "X-API-Key": key}
    page = jpeg_bytes()
    urls = (f"{server.url}/v1/ocr" for server in servers)
    return [httpx.post(url, content=page, headers=headers).status_code for url in urls]


def test_replicas_share_a_callers_quota_and_go_on_without_redis(tmp_path: Path) -> None:
    port = free_port()
    (first, first_entry), (second, second_entry) = new_key("first"), new_key("second")
    keys = tmp_path / "keys"
    keys.write_text(f"{first_entry}\n{second_entry}\n")
    settings = {
        "api_keys_file": keys,
        "redis_url": f"redis://127.0.0.1:{port}",
        "quota_requests_per_s": 0.001,
        "quota_requests_burst": 6,
    }
    with (
        stand_in(tmp_path, 20) as engine,
        server_before(engine, tmp_path, **settings) as one,
        server_before(engine, tmp_path, **settings) as two,
    ):
        with redis_server(tmp_path, port):
            assert statuses(first, *[one, two] * 5).count(200) == 6
            assert one.metric("hunyuan_ocr_quota_store_down") == 0
        # Redis is gone: nobody waits for it, and each counts alone.
        assert statuses(second, one, one, two) == [200] * 3
        assert one.metric("hunyuan_ocr_quota_store_down") == 1
        assert statuses(first, one, two) == [429, 429]
        with redis_server(tmp_path, port):
            taken = 3
            while one.metric("hunyuan_ocr_quota_store_down"):
                assert taken < 6, "its quota is used up, and Redis was not asked again"
                time.sleep(1)
                taken += statuses(second, one).count(200)
