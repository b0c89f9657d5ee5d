"""Start-time fair queueing over tenants, earliest deadline first inside a tenant.

In virtual time, a tenant's next page starts where its last one ended, or now; the least start goes
first. A page ends its cost after its start, so whoever asks for little at a time is served sooner.

Virtual time moves as if all tenants that have something due were served at once, in equal parts
(A. Demers, S. Keshav, S. Shenker, SIGCOMM 1989). If it only followed the pages taken, newcomers
with one page each would hold it still, and pass everybody else.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

from hunyuan_ocr.traffic.rounding import less
from hunyuan_ocr.traffic.start_tag import StartTag


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
    __slots__ = ("backlog", "idle", "line", "name", "pages", "place", "tag")

    def __init__(self, name: str, virtual: float) -> None:
        self.name = name
        self.line: list[E] = []  # the earliest deadline stands last, where taking it is cheap
        self.pages = 0  # booked, in line or not
        self.backlog = 0.0  # their cost
        self.tag = StartTag(virtual)
        self.place = 0  # number of its valid item in the heap of starts; 0: none
        self.idle = False  # whether it stands in the heap of those to be forgotten


class FairQueue(Generic[E]):
    """Pages waiting; each operation costs O(log n) comparisons, and remembers no more tenants
    than wait or were served lately.

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
        self._due = 0.0  # by which virtual time is to move on; below zero, it is ahead
        self._places = 0

    def book(self, entry: E) -> None:
        tenant = self._tenant(entry.tenant)
        self._busy += tenant.pages == 0
        tenant.pages += 1
        tenant.backlog += entry.cost
        self.pages += 1
        self.backlog += entry.cost

    def unbook(self, entry: E) -> None:
        """Give up a page that does not stand in line."""
        tenant = self._tenants[entry.tenant]
        tenant.pages -= 1
        tenant.backlog = less(tenant.backlog, entry.cost)
        self.pages -= 1
        self.backlog = less(self.backlog, entry.cost)
        if tenant.pages == 0:
            self._busy -= 1
            self._set_aside(tenant)
        self._forget_idle()

    def join(self, entry: E) -> None:
        """Put a booked page in line."""
        tenant = self._tenants[entry.tenant]
        insort(tenant.line, entry, key=_last_is_first)
        if not tenant.place:
            tenant.tag.join(self._virtual)
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
            self._due += entry.cost / len(self._tenants)
            self._virtual = max(start, self._virtual + max(0.0, self._due))
            self._due = min(0.0, self._due)
            tenant.tag.take(entry.cost)
            if tenant.line:
                self._place(tenant)
            self.unbook(entry)
            return entry
        return None

    def settle(self, tenant_name: str, extra: float) -> None:
        """A page that was taken cost `extra` more than it was taken for, or less."""
        if not self.pages:
            return  # nobody waits, and so nobody is owed anything
        tenant = self._tenant(tenant_name)
        tenant.tag.settle(extra)
        self._due += extra / len(self._tenants)
        if tenant.place:
            self._place(tenant)
        elif not tenant.pages:
            self._set_aside(tenant)
            self._forget_idle()

    def ahead(self, tenant_name: str, deadline: float, cost: float) -> Ahead:
        """What would be served before the last of `cost` more from a tenant.

        Each tenant gets as much as this one meanwhile, at most what it has waiting.
        """
        tenant = self._tenants.get(tenant_name)
        own_pages, own_cost, others = 0, 0.0, self._busy
        if tenant is not None and tenant.pages:
            line = tenant.line
            is_last = not line or line[0].deadline < deadline
            later = 0 if is_last else bisect_left(line, -deadline, key=_minus_deadline)
            kept = 1 - later / tenant.pages
            own_pages, own_cost, others = tenant.pages - later, tenant.backlog * kept, others - 1
        pages = own_pages + min(self.pages - own_pages, others * (own_pages + 1))
        return Ahead(pages, own_cost + min(self.backlog - own_cost, others * (own_cost + cost)))

    def backlog_within(self, most: float) -> float:
        """The cost of what is booked, of each tenant's `most`; takes O(n)."""
        return sum(min(tenant.backlog, most) for tenant in self._tenants.values())

    def _tenant(self, name: str) -> _Tenant[E]:
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(name, self._virtual)
        return tenant

    def _place(self, tenant: _Tenant[E]) -> None:
        self._places += 1
        tenant.place = self._places
        heappush(self._starts, (tenant.tag.start, tenant.place, tenant))
        if len(self._starts) > _STALE_ITEMS + 2 * len(self._tenants):
            self._starts = [item for item in self._starts if item[1] == item[2].place]
            heapify(self._starts)

    def _set_aside(self, tenant: _Tenant[E]) -> None:
        if not tenant.idle:
            tenant.idle = True
            self._places += 1
            heappush(self._idle, (tenant.tag.start, self._places, tenant))

    def _forget_idle(self) -> None:
        """Forget tenants without pages whose past no longer matters."""
        if not self.pages:
            self._tenants.clear()
            self._starts.clear()
            self._idle.clear()
            self._due = 0.0
        while self._idle and self._idle[0][0] <= self._virtual:
            tenant = heappop(self._idle)[2]
            tenant.idle = False
            if tenant.pages == 0 and tenant.tag.start <= self._virtual:
                del self._tenants[tenant.name]
            elif tenant.pages == 0:
                self._set_aside(tenant)


def _last_is_first(entry: Entry) -> tuple[float, int]:
    return -entry.deadline, -entry.number


def _minus_deadline(entry: Entry) -> float:
    return -entry.deadline
