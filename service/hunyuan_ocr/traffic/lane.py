"""One class of requests: who waits, who is prepared ahead, and what it was given lately."""

from __future__ import annotations

import math
from collections import deque
from random import Random

from hunyuan_ocr.traffic.classes import ClassPolicy
from hunyuan_ocr.traffic.fair_queue import FairQueue
from hunyuan_ocr.traffic.retry import ReturnTimes
from hunyuan_ocr.traffic.rounding import less
from hunyuan_ocr.traffic.start_tag import StartTag
from hunyuan_ocr.traffic.tickets import State, Ticket

_USE_TIME_CONSTANT_S = 5.0
# One caller's backlog harms that caller: it counts as no more than this part of a full queue.
_PRESSURE_OF_ONE = 0.5


class Lane:
    """A class's pages by state, and its turn among the classes; costs are slot seconds."""

    def __init__(self, policy: ClassPolicy, rng: Random) -> None:
        self.policy = policy
        self.queue: FairQueue[Ticket] = FairQueue()
        self.called = 0
        self.ready: deque[Ticket] = deque()
        self.held_slots = 0.0
        self.tag = StartTag()
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
            self.tag.join(virtual)
        self.ready.append(ticket)

    def run(self, now: float) -> Ticket:
        """Give the first ready page its slots."""
        ticket = self.ready.popleft()
        ticket.state = State.RUNNING
        self._no_longer_ahead(ticket)
        self.tag.take(ticket.cost / self.policy.share)
        self.held_slots += ticket.price.slots
        self._used_rate = self.used_rate(now) + ticket.cost / _USE_TIME_CONSTANT_S
        self._used_at = now
        return ticket

    def settle(self, now: float, ticket: Ticket) -> None:
        """A page that held slots is gone, and `ticket.extra` is known."""
        self.tag.settle(ticket.extra / self.policy.share)
        used = self.used_rate(now) + ticket.extra / _USE_TIME_CONSTANT_S
        self._used_rate, self._used_at = max(0.0, used), now
        self.queue.settle(ticket.tenant, ticket.extra)

    def leave(self, ticket: Ticket) -> None:
        """Give up its place, or its slots; what never had any cost nothing."""
        state, ticket.state = ticket.state, State.GONE
        if state is State.GONE:
            return
        if state is State.RUNNING:
            self.held_slots = less(self.held_slots, ticket.price.slots)
            return
        ticket.extra = -ticket.cost
        if state is State.BOOKED:
            self.queue.unbook(ticket)
        elif state is State.WAITING:
            self.queue.leave(ticket)
        else:
            if state is State.CALLED:
                self.called -= 1
            else:
                self.ready.remove(ticket)
            self._no_longer_ahead(ticket)
            self.queue.settle(ticket.tenant, ticket.extra)

    def used_rate(self, now: float) -> float:
        """Cost a second that was given slots lately."""
        if not self._used_rate:
            return 0.0
        return self._used_rate * math.exp(-max(0.0, now - self._used_at) / _USE_TIME_CONSTANT_S)

    def excess(self, tenant: str, usual_cost: float, drain_rate: float) -> float:
        """Cost that must be served before there is room for a page of a tenant; 0: there is.

        The bound is on what is served before it, so that a backlog fills the queue of the tenant
        whose it is. What the page costs itself plays no part, else a full queue would take small
        pages only: `usual_cost` stands for it.
        """
        if not self.pages:
            return 0.0
        ahead = self.queue.ahead(tenant, math.inf, usual_cost)
        return max(0.0, self.ahead_cost + ahead.cost - self.policy.max_queue_s * drain_rate)

    def pressure(self, drain_rate: float) -> float:
        """How full the queue is, 1 for its bound, by the backlogs of several tenants."""
        bound = self.policy.max_queue_s * drain_rate
        waiting = self.queue.backlog_within(_PRESSURE_OF_ONE * bound)
        return (self.ahead_cost + waiting) / bound

    def _no_longer_ahead(self, ticket: Ticket) -> None:
        self.ahead_cost = less(self.ahead_cost, ticket.cost)
