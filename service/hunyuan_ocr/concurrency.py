"""Running many jobs, some at a time, and one again and again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from itertools import islice
from typing import TypeVar

_log = logging.getLogger(__name__)

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
                # Looked at now: asyncio logs what nobody took, and with it its words.
                if not finished.cancelled():
                    finished.exception()
            for finished in done:
                yield finished.result()
    finally:
        for job in running:
            job.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def repeat(period_s: float, step: Callable[[], Awaitable[None]]) -> None:
    """For ever: a step, then a pause. One that fails is logged, and the next is taken."""
    while True:
        try:
            await step()
        except Exception as error:  # noqa: BLE001 - who watches must not end unseen
            _log.error("a watch failed", exc_info=error)
        await asyncio.sleep(period_s)
