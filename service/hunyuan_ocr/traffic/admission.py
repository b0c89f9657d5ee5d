"""Admission: which pages wait, which is next, and who is told at once to come back later.

A plain state machine without clock, tasks or I/O; `gate.py` drives it. Tenants of a class take
turns at being called, to be prepared; classes take turns at slots of the engine, which are given
only to pages that are ready to be sent. Costs are slot seconds (`cost.Price`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count
from random import Random

from hunyuan_ocr.traffic.classes import ClassPolicies, Priority
from hunyuan_ocr.traffic.cost import CostModel, Price
from hunyuan_ocr.traffic.lane import Lane, less
from hunyuan_ocr.traffic.tickets import Asked, Moves, Refusal, State, Ticket

_ROUNDING = 1e-9
# The price of pages not seen yet, as a moving mean of those that were.
_TYPICAL_WEIGHT = 0.05


class Admission:
    """Who may have the engine; each method is O(log n) in the pages waiting.

    Of a class, `pages_ahead` pages may be prepared before they get a slot. `reserved_slots` are
    kept from batch for interactive pages. Times are of one monotonic clock, in seconds.
    """

    def __init__(
        self,
        model: CostModel,
        policies: ClassPolicies,
        *,
        limit_slots: float,
        reserved_slots: float,
        pages_ahead: int,
        rng: Random,
    ) -> None:
        self._model = model
        self._lanes = {priority: Lane(policy, rng) for priority, policy in policies.items()}
        self._batch = self._lanes[Priority.BATCH]
        self._shares = sum(policy.share for policy in policies.values())
        self._pages_ahead = pages_ahead
        self._reserved_slots = reserved_slots
        self._numbers = count(1)
        self._virtual = 0.0
        self._typical_cost = 1.0
        self.limit_slots = limit_slots
        self.batch_slots_max = math.inf  # lowered to shrink batch
        self.held_slots = 0.0
        self.running = 0  # pages that hold slots
        self.last_started_at = -math.inf
        self._slot_seconds = 0.0
        self._integrated_at = 0.0

    def waiting(self, priority: Priority) -> int:
        """Pages admitted that hold no slot yet."""
        return self._lanes[priority].pages

    @property
    def begun(self) -> int:
        """Pages being prepared, ready, or holding slots."""
        return self.running + sum(lane.pages_ahead for lane in self._lanes.values())

    def fullness(self, priority: Priority) -> float:
        """The work that waits in a class, as a part of its bound."""
        lane = self._lanes[priority]
        return lane.backlog / (lane.policy.max_queue_s * self.drain_rate)

    @property
    def drain_rate(self) -> float:
        """Cost that the whole engine serves in a second now."""
        return self._model.drain_rate(self.limit_slots)

    def submit(self, now: float, asked: Asked) -> Sequence[Ticket] | Refusal:
        """Book all pages of a request, or refuse it as a whole."""
        if refusal := self.refusal(now, asked):
            return refusal
        lane = self._lanes[asked.priority]
        tickets = []
        for price in asked.prices:
            self._typical_cost += _TYPICAL_WEIGHT * (price.cost - self._typical_cost)
            number = next(self._numbers)
            tickets.append(Ticket(number, asked.priority, asked.tenant, asked.deadline, price))
            lane.queue.book(tickets[-1])
        return tickets

    def refusal(self, now: float, asked: Asked) -> Refusal | None:
        """What `asked` is refused with now, if it is; books nothing."""
        lane = self._lanes[asked.priority]
        cost = sum(price.cost for price in asked.prices)
        rate = self._rate(now, lane)
        ahead = lane.queue.ahead(asked.tenant, asked.deadline, cost)
        waiting = cost * (1 - self._at_once(now, lane, asked.prices))
        wait_s = (lane.ahead_cost + ahead.cost + waiting) / rate
        excess = lane.excess(asked.tenant, self.drain_rate)
        late_s = now + wait_s + self._longest_s(asked.prices) - asked.deadline
        if excess <= 0 and late_s <= 0:
            return None
        room_s = max(excess / rate, min(late_s, wait_s))
        cost = cost or self._typical_cost
        return Refusal(
            reason="queue_full" if excess > 0 else "deadline_unreachable",
            position=lane.pages_ahead + ahead.pages,
            predicted_wait_s=wait_s,
            retry_after_s=lane.return_times.next_s(now, room_s, cost, rate),
            cost=cost,
        )

    def join(self, ticket: Ticket) -> None:
        """Somebody waits for the turn of this booked page."""
        ticket.state = State.WAITING
        self._lanes[ticket.priority].queue.join(ticket)

    def make_ready(self, ticket: Ticket) -> None:
        """This called page is prepared and wants a slot."""
        self._lanes[ticket.priority].make_ready(ticket, self._virtual)

    def leave(self, now: float, ticket: Ticket) -> None:
        """Give back all that a page holds, whatever its state; leaving twice is allowed."""
        if ticket.state is State.RUNNING:
            self._integrate(now)
            self.running -= 1
            self.held_slots = less(self.held_slots, ticket.price.slots)
        self._lanes[ticket.priority].leave(ticket)

    def load_slots(self, now: float, ticket: Ticket) -> float:
        """Slots that others held, in the mean, since this running page got its own."""
        self._integrate(now)
        elapsed_s = now - ticket.started_at
        if elapsed_s <= 0:
            return max(0.0, self.held_slots - ticket.price.slots)
        held = (self._slot_seconds - ticket.slot_seconds) / elapsed_s
        return max(0.0, held - ticket.price.slots)

    def advance(self, now: float) -> Moves:
        """Give free slots to pages that are ready, and call the next ones to be prepared."""
        dropped: list[Ticket] = []
        started = self._start(now, dropped)
        return Moves(called=self._call(now, dropped), started=started, dropped=dropped)

    def _start(self, now: float, dropped: list[Ticket]) -> list[Ticket]:
        started = []
        while lane := self._next_lane(now, dropped):
            slots = lane.ready[0].price.slots
            if self.held_slots and self.held_slots + slots > self.limit_slots + _ROUNDING:
                break  # a large page waits for its slots, and nobody passes it
            self._virtual = lane.start
            ticket = lane.run(now)
            ticket.started_at, ticket.slot_seconds = now, self._integrate(now)
            self.held_slots += slots
            self.running += 1
            self.last_started_at = now
            started.append(ticket)
        return started

    def _next_lane(self, now: float, dropped: list[Ticket]) -> Lane | None:
        """Start-time fair queueing again, over the classes."""
        chosen = None
        for lane in self._lanes.values():
            while lane.ready and self._too_late(now, lane.ready[0]):
                dropped.append(lane.ready[0])
                lane.leave(lane.ready[0])
            if not lane.ready or not self._within_cap(now, lane, lane.ready[0].price.slots):
                continue
            if chosen is None or lane.start < chosen.start:
                chosen = lane
        return chosen

    def _call(self, now: float, dropped: list[Ticket]) -> list[Ticket]:
        called = []
        for lane in self._lanes.values():
            while lane.pages_ahead < self._pages_ahead and (ticket := lane.call()):
                if self._too_late(now, ticket):
                    lane.leave(ticket)
                    dropped.append(ticket)
                else:
                    called.append(ticket)
        return called

    def _too_late(self, now: float, ticket: Ticket) -> bool:
        return now + self._longest_s((ticket.price,)) > ticket.deadline

    def _longest_s(self, prices: Sequence[Price]) -> float:
        """Predicted service of the longest page beside a full engine."""
        stretch = self.limit_slots / self.drain_rate
        return stretch * max((price.alone_s for price in prices), default=0.0)

    def _at_once(self, now: float, lane: Lane, prices: Sequence[Price]) -> float:
        """The part of a request that finds slots free."""
        if lane.pages or not prices or not self._within_cap(now, lane, prices[0].slots):
            return 0.0
        slots = sum(price.slots for price in prices)
        free = self.limit_slots - self.held_slots
        if free >= slots or (len(prices) == 1 and not self.held_slots):
            return 1.0  # an idle engine takes any page
        return max(0.0, free) / slots if len(prices) > 1 else 0.0

    def _within_cap(self, now: float, lane: Lane, slots: float) -> bool:
        """Batch takes what leaves the reserved slots free, and its share in any case."""
        if lane is not self._batch or not self.held_slots:
            return True
        if lane.held_slots and lane.held_slots + slots > self._batch_cap() + _ROUNDING:
            return False
        if self.held_slots + slots <= self._batch_cap() + _ROUNDING:
            return True
        share = lane.policy.share / self._shares
        return lane.used_rate(now) < share * self.drain_rate

    def _batch_cap(self) -> float:
        return max(1.0, min(self.limit_slots - self._reserved_slots, self.batch_slots_max))

    def _rate(self, now: float, lane: Lane) -> float:
        """Cost a second that a class can count on: its share, or what the others leave."""
        drain = self.drain_rate
        used = sum(other.used_rate(now) for other in self._lanes.values() if other is not lane)
        rate = max(lane.policy.share / self._shares * drain, drain - used)
        if lane is self._batch:
            rate = min(rate, drain * self._batch_cap() / self.limit_slots)
        return rate

    def _integrate(self, now: float) -> float:
        """Slot seconds held so far."""
        self._slot_seconds += self.held_slots * max(0.0, now - self._integrated_at)
        self._integrated_at = now
        return self._slot_seconds
