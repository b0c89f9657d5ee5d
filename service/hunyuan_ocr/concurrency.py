"""Running many jobs, some at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


async def as_they_finish(
    jobs: Iterable[Callable[[], Awaitable[T]]], limit: int
) -> AsyncGenerator[T]:
    """Run jobs, `limit` at once, and yield their values as they finish.

    A slow consumer holds back the jobs not started yet; closing the generator cancels those that
    run and waits until they are gone.
    """
    running: set[asyncio.Future[T]] = set()
    waiting = iter(jobs)
    try:
        while True:
            running.update(
                asyncio.ensure_future(job()) for job in islice(waiting, limit - len(running))
            )
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for finished in done:
                yield finished.result()
    finally:
        for job in running:
            job.cancel()
        await asyncio.gather(*running, return_exceptions=True)
