"""Start-time fair queueing over tenants, earliest deadline first inside a tenant.

P. Goyal, H. M. Vin, H. Cheng, "Start-time fair queueing" (SIGCOMM 1996): in virtual time, a
tenant's next page starts where its last one ended, or now; the least start goes first. A page
ends its cost after its start, so whoever asks for little at a time is served sooner.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar


class Entry(Protocol):
    """What can wait here. `number` is unique and grows with arrival."""

    @property
    def tenant(self) -> str: ...
    @property
    def deadline(self) -> float: ...
    @property
    def cost(self) -> float: ...
    @property
    def number(self) -> int: ...


E = TypeVar("E", bound=Entry)

# Places given up leave items behind in a heap, which is tidied when there are this many more
# than needed.
_STALE_ITEMS = 256


@dataclass(frozen=True, slots=True)
class Ahead:
    """What would be served before a new page: how many pages, of what cost; an estimate."""

    pages: int
    cost: float


class _Tenant(Generic[E]):
    __slots__ = ("backlog", "finish", "idle", "line", "name", "pages", "place")

    def __init__(self, name: str) -> None:
        self.name = name
        self.line: list[E] = []  # the earliest deadline stands last, where taking it is cheap
        self.pages = 0  # booked, in line or not
        self.backlog = 0.0  # their cost
        self.finish = 0.0  # virtual time at which its last page ended
        self.place = 0  # number of its valid item in the heap of starts; 0: none
        self.idle = False  # whether it stands in the heap of those to be forgotten


class FairQueue(Generic[E]):
    """Pages waiting; each operation costs O(log n) comparisons.

    A page is booked from the moment it is admitted, and stands in line while somebody waits for
    its turn: so a document's later pages count in predictions before they can be called.
    """

    def __init__(self) -> None:
        self.pages = 0
        self.backlog = 0.0
        self._tenants: dict[str, _Tenant[E]] = {}
        self._starts: list[tuple[float, int, _Tenant[E]]] = []
        self._idle: list[tuple[float, int, _Tenant[E]]] = []
        self._busy = 0  # tenants with pages booked
        self._virtual = 0.0
        self._places = 0

    def book(self, entry: E) -> None:
        tenant = self._tenants.get(entry.tenant)
        if tenant is None:
            tenant = self._tenants[entry.tenant] = _Tenant(entry.tenant)
        self._busy += tenant.pages == 0
        tenant.pages += 1
        tenant.backlog += entry.cost
        self.pages += 1
        self.backlog += entry.cost

    def unbook(self, entry: E) -> None:
        """Give up a page that does not stand in line."""
        tenant = self._tenants[entry.tenant]
        tenant.pages -= 1
        tenant.backlog -= entry.cost
        self.pages -= 1
        self.backlog -= entry.cost
        if tenant.pages == 0:
            tenant.backlog = 0.0
            self._busy -= 1
            self._set_aside(tenant)
            self._forget_idle()
        if self.pages == 0:
            self.backlog = 0.0  # no rounding errors are carried over

    def join(self, entry: E) -> None:
        """Put a booked page in line."""
        tenant = self._tenants[entry.tenant]
        insort(tenant.line, entry, key=_last_is_first)
        if not tenant.place:
            self._place(tenant)

    def leave(self, entry: E) -> None:
        """Take a page out of line and give it up."""
        line = self._tenants[entry.tenant].line
        del line[bisect_left(line, _last_is_first(entry), key=_last_is_first)]
        if not line:
            self._tenants[entry.tenant].place = 0
        self.unbook(entry)

    def take(self) -> E | None:
        """The page whose turn it is; it is no longer booked."""
        while self._starts:
            start, place, tenant = heappop(self._starts)
            if place != tenant.place:
                continue
            tenant.place = 0
            entry = tenant.line.pop()
            self._virtual = start
            tenant.finish = start + entry.cost
            if tenant.line:
                self._place(tenant)
            self.unbook(entry)
            return entry
        return None

    def ahead(self, tenant_name: str, deadline: float, cost: float) -> Ahead:
        """What would be served before the last of `cost` more from a tenant.

        Each tenant gets as much as this one meanwhile, at most what it has waiting.
        """
        tenant = self._tenants.get(tenant_name)
        own_pages, own_cost, others = 0, 0.0, self._busy
        if tenant is not None and tenant.pages:
            later = bisect_left(tenant.line, -deadline, key=_minus_deadline)
            kept = 1 - later / tenant.pages
            own_pages, own_cost, others = tenant.pages - later, tenant.backlog * kept, others - 1
        pages = own_pages + min(self.pages - own_pages, others * (own_pages + 1))
        return Ahead(pages, own_cost + min(self.backlog - own_cost, others * (own_cost + cost)))

    def backlog_of(self, tenant_name: str) -> float:
        tenant = self._tenants.get(tenant_name)
        return tenant.backlog if tenant else 0.0

    def _place(self, tenant: _Tenant[E]) -> None:
        self._places += 1
        tenant.place = self._places
        heappush(self._starts, (max(self._virtual, tenant.finish), tenant.place, tenant))
        if len(self._starts) > _STALE_ITEMS + 2 * len(self._tenants):
            self._starts = [item for item in self._starts if item[1] == item[2].place]
            heapify(self._starts)

    def _set_aside(self, tenant: _Tenant[E]) -> None:
        if not tenant.idle:
            tenant.idle = True
            self._places += 1
            heappush(self._idle, (tenant.finish, self._places, tenant))

    def _forget_idle(self) -> None:
        """Forget tenants without pages whose past no longer matters."""
        while self._idle and self._idle[0][0] <= self._virtual:
            tenant = heappop(self._idle)[2]
            tenant.idle = False
            if tenant.pages == 0 and tenant.finish <= self._virtual:
                del self._tenants[tenant.name]
            elif tenant.pages == 0:
                self._set_aside(tenant)


def _last_is_first(entry: Entry) -> tuple[float, int]:
    return -entry.deadline, -entry.number


def _minus_deadline(entry: Entry) -> float:
    return -entry.deadline
