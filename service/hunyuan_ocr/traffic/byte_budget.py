"""How many bytes of request bodies are in memory at once."""

from __future__ import annotations

from hunyuan_ocr.errors import QueueFull

# As for the queues (`lane.py`): one caller leaves some of the room to others.
_OF_ROOM_LEFT = 4


class ByteBudget:
    """Bytes of request bodies that may be in memory at once; each caller holds a part of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tenants: dict[str, int] = {}
        self.held = 0

    def take(self, tenant: str, count: int) -> None:
        """Raise QueueFull where `count` more bytes would exceed the limit, or a caller's part.

        Of an empty budget a caller may have all, for one body.
        """
        own = self._tenants.get(tenant, 0)
        room = self._limit - self.held - count
        if room < 0 or (self.held and own + count > _OF_ROOM_LEFT * room):
            raise QueueFull("too many request bodies are in memory already", retry_after_s=1.0)
        self._tenants[tenant] = own + count
        self.held += count

    def give_back(self, tenant: str, count: int) -> None:
        own = self._tenants.pop(tenant, 0) - count
        if own > 0:
            self._tenants[tenant] = own
        self.held -= count
