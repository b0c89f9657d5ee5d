"""One class of requests: who waits, who is prepared ahead, and what it was given lately."""

from __future__ import annotations

import math
from collections import deque
from random import Random

from hunyuan_ocr.traffic.classes import ClassPolicy
from hunyuan_ocr.traffic.fair_queue import FairQueue
from hunyuan_ocr.traffic.retry import ReturnTimes
from hunyuan_ocr.traffic.tickets import State, Ticket

# A tenant may hold this many times the room that is left, so some is always left for others
# (dynamic thresholds: A. K. Choudhury, E. L. Hahne, IEEE/ACM Transactions on Networking, 1998).
_OF_ROOM_LEFT = 4.0
_USE_TIME_CONSTANT_S = 5.0
_ROUNDING = 1e-9


class Lane:
    """A class's pages by state, and its turn among the classes; costs are slot seconds."""

    def __init__(self, policy: ClassPolicy, rng: Random) -> None:
        self.policy = policy
        self.queue: FairQueue[Ticket] = FairQueue()
        self.called = 0
        self.ready: deque[Ticket] = deque()
        self.held_slots = 0.0
        self.start = 0.0  # virtual time at which its next page starts
        self.return_times = ReturnTimes(rng)
        self.ahead_cost = 0.0  # of the pages called or ready
        self._used_rate = 0.0
        self._used_at = 0.0

    @property
    def pages_ahead(self) -> int:
        """Pages called or ready."""
        return self.called + len(self.ready)

    @property
    def pages(self) -> int:
        """Pages without a slot."""
        return self.queue.pages + self.pages_ahead

    @property
    def backlog(self) -> float:
        """Cost of the pages without a slot."""
        return self.queue.backlog + self.ahead_cost

    def call(self) -> Ticket | None:
        ticket = self.queue.take()
        if ticket is not None:
            ticket.state = State.CALLED
            self.called += 1
            self.ahead_cost += ticket.cost
        return ticket

    def make_ready(self, ticket: Ticket, virtual: float) -> None:
        ticket.state = State.READY
        self.called -= 1
        if not self.ready:
            self.start = max(self.start, virtual)
        self.ready.append(ticket)

    def run(self, now: float) -> Ticket:
        """Give the first ready page its slots."""
        ticket = self.ready.popleft()
        ticket.state = State.RUNNING
        self._no_longer_ahead(ticket)
        self.start += ticket.cost / self.policy.share
        self.held_slots += ticket.price.slots
        self._used_rate = self.used_rate(now) + ticket.cost / _USE_TIME_CONSTANT_S
        self._used_at = now
        return ticket

    def leave(self, ticket: Ticket) -> None:
        state, ticket.state = ticket.state, State.GONE
        if state is State.BOOKED:
            self.queue.unbook(ticket)
        elif state is State.WAITING:
            self.queue.leave(ticket)
        elif state is State.CALLED:
            self.called -= 1
            self._no_longer_ahead(ticket)
        elif state is State.READY:
            self.ready.remove(ticket)
            self._no_longer_ahead(ticket)
        elif state is State.RUNNING:
            self.held_slots = less(self.held_slots, ticket.price.slots)

    def used_rate(self, now: float) -> float:
        """Cost a second that was given slots lately."""
        return self._used_rate * math.exp(-max(0.0, now - self._used_at) / _USE_TIME_CONSTANT_S)

    def excess(self, tenant: str, drain_rate: float) -> float:
        """Cost that must be served before there is room for a page of a tenant; 0: there is.

        What the page costs itself plays no part: else a full queue would take small pages only.
        """
        room = self.policy.max_queue_s * drain_rate - self.backlog
        over = self.queue.backlog_of(tenant) - _OF_ROOM_LEFT * room
        return max(-room, over / (1 + _OF_ROOM_LEFT), 0.0) if self.pages else 0.0

    def _no_longer_ahead(self, ticket: Ticket) -> None:
        self.ahead_cost = less(self.ahead_cost, ticket.cost)


def less(total: float, part: float) -> float:
    """`total` - `part`, where rounding must not leave crumbs."""
    rest = total - part
    return rest if rest > _ROUNDING else 0.0
