"""Slots and bytes: how much is worked on, and held in memory, at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager

from hunyuan_ocr.errors import QueueFull


class Slots:
    """At most `limit` pages hold a slot; the others wait, first come first served."""

    def __init__(self, limit: int) -> None:
        self._free = asyncio.Semaphore(limit)
        self.waiting = 0
        self.held = 0

    @asynccontextmanager
    async def hold(self, wait: AbstractContextManager[None]) -> AsyncIterator[None]:
        """Hold a slot while inside; the waiting for it happens inside `wait`, which times it."""
        self.waiting += 1
        try:
            with wait:
                await self._free.acquire()
        finally:
            self.waiting -= 1
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1
            self._free.release()


class ByteBudget:
    """Bytes of request bodies that may be in memory at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    def take(self, count: int) -> None:
        """Raise QueueFull where `count` more bytes would exceed the limit."""
        if self.held + count > self._limit:
            raise QueueFull("too many request bodies are in memory already", retry_after_s=1.0)
        self.held += count

    def give_back(self, count: int) -> None:
        self.held -= count
