"""Admission: which pages wait, which is next, and who is told at once to come back later.

A plain state machine without clock, tasks or I/O; `gate.py` drives it. Tenants of a class take
turns at being called, to be prepared; classes take turns at slots of the engine, which are given
only to pages that are ready to be sent. Costs are slot seconds (`cost.Price`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from random import Random

from hunyuan_ocr.traffic.classes import ClassPolicies, Priority
from hunyuan_ocr.traffic.cost import CostModel, Price
from hunyuan_ocr.traffic.lane import Lane
from hunyuan_ocr.traffic.retry import spread_s
from hunyuan_ocr.traffic.rounding import fits, less
from hunyuan_ocr.traffic.tickets import Asked, Moves, Reason, Refusal, State, Ticket

# What is predicted comes out a little longer now and then, and a late answer is work for nobody.
_MARGIN = 1.05
# The price of pages not seen yet, as a moving mean of those that were.
_TYPICAL_WEIGHT = 0.05


@dataclass(slots=True)
class _Outlook:
    """What a request of `cost` would meet now: `pages` of its class's queue before it, `wait_s` of
    waiting, `excess` cost too much in the queue, and an end `late_s` after its deadline."""

    lane: Lane
    cost: float
    rate: float
    pages: int
    wait_s: float
    excess: float
    late_s: float

    @property
    def has_room(self) -> bool:
        return self.excess <= 0 and self.late_s <= 0


class Admission:
    """Who may have the engine; each method takes O(log n) comparisons in the pages waiting.

    Of a class, `pages_ahead` pages may be prepared before they get a slot. `reserved_slots`, less
    than half of all, are kept from batch for interactive pages. Times are of one monotonic clock,
    in seconds.
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
        self._rng = rng
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
        self.in_use = False  # a page is ready for which there is no room
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

    def pressure(self, priority: Priority) -> float:
        """The same where several callers wait; the backlog of one alone is no pressure."""
        return self._lanes[priority].pressure(self.drain_rate)

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

    def has_room(self, now: float, asked: Asked) -> bool:
        """Whether `asked` would be booked now."""
        return self._outlook(now, asked).has_room

    def refusal(self, now: float, asked: Asked) -> Refusal | None:
        """What `asked` is refused with now, if it is; books nothing but when to come back."""
        outlook = self._outlook(now, asked)
        if outlook.has_room:
            return None
        lane, rate, wait_s = outlook.lane, outlook.rate, outlook.wait_s
        excess, late_s, cost = outlook.excess, outlook.late_s, outlook.cost
        position, alone_s = lane.pages_ahead + outlook.pages, self._alone_s(asked.prices, cost)
        if now + alone_s > asked.deadline:
            never_s = spread_s(math.inf, self._rng)
            return Refusal("time_too_short", position, wait_s, alone_s, never_s, cost)
        reason: Reason = "queue_full" if excess > 0 else "deadline_unreachable"
        room_s = max(excess / rate, min(late_s, wait_s))
        cost = cost or self._typical_cost
        after_s = lane.return_times.next_s(now, asked.tenant, room_s, cost, rate)
        return Refusal(reason, position, wait_s, alone_s, after_s, cost)

    def _outlook(self, now: float, asked: Asked) -> _Outlook:
        lane, drain = self._lanes[asked.priority], self.drain_rate
        cost = sum(price.cost for price in asked.prices)
        rate = self._rate(now, lane, drain)
        ahead = lane.queue.ahead(asked.tenant, asked.deadline, cost)
        waiting = cost * (1 - self._at_once(now, lane, asked.prices))
        wait_s = (lane.ahead_cost + ahead.cost + waiting) / rate
        excess = lane.excess(asked.tenant, self._typical_cost, drain)
        late_s = now + _MARGIN * (wait_s + self._service_s(asked.prices)) - asked.deadline
        return _Outlook(lane, cost, rate, ahead.pages, wait_s, excess, late_s)

    def join(self, ticket: Ticket) -> None:
        """Somebody waits for the turn of this booked page."""
        ticket.state = State.WAITING
        self._lanes[ticket.priority].queue.join(ticket)

    def make_ready(self, ticket: Ticket) -> None:
        """This called page is prepared and wants a slot."""
        self._lanes[ticket.priority].make_ready(ticket, self._virtual)

    def leave(self, now: float, ticket: Ticket) -> None:
        """Give back all that a page holds, whatever its state; leaving twice is allowed."""
        lane = self._lanes[ticket.priority]
        if ticket.state is State.RUNNING:
            self._settle(now, ticket)
            lane.settle(now, ticket)
            self.running -= 1
            self.held_slots = less(self.held_slots, ticket.price.slots)
        lane.leave(ticket)

    def account(self, now: float, ticket: Ticket, alone_s: float) -> None:
        """What this running page did since it was last accounted for would have taken `alone_s`
        in health."""
        ticket.used += ticket.price.slots * alone_s
        ticket.used_until = now

    def excuse(self, ticket: Ticket, seconds: float) -> None:
        """For so long a running page held its slots and got nothing from the engine for them."""
        ticket.used_until += seconds

    def begin(self, now: float, ticket: Ticket) -> None:
        """A turn of this running page begins, its first or another."""
        ticket.started_at, ticket.slot_seconds = now, self.slot_seconds(now)

    def load_slots(self, now: float, ticket: Ticket) -> float:
        """Slots that others held, in the mean, since this running page's turn began."""
        self.slot_seconds(now)
        elapsed_s = now - ticket.started_at
        if elapsed_s <= 0:
            return max(0.0, self.held_slots - ticket.price.slots)
        held = (self._slot_seconds - ticket.slot_seconds) / elapsed_s
        return max(0.0, held - ticket.price.slots)

    def slot_seconds(self, now: float) -> float:
        """Slot seconds held so far."""
        self._slot_seconds += self.held_slots * max(0.0, now - self._integrated_at)
        self._integrated_at = now
        return self._slot_seconds

    def advance(self, now: float, *, engine_ready: bool = True) -> Moves:
        """Give free slots to pages that are ready, and call the next ones to be prepared.

        While the engine is not ready, those that are prepared keep their place.
        """
        dropped: list[Ticket] = []
        self._drop_late(now, dropped)
        started = self._start(now) if engine_ready else []
        return Moves(called=self._call(now, dropped), started=started, dropped=dropped)

    def _drop_late(self, now: float, dropped: list[Ticket]) -> None:
        for lane in self._lanes.values():
            while lane.ready and self._too_late(now, lane.ready[0]):
                dropped.append(lane.ready[0])
                lane.leave(lane.ready[0])

    def _start(self, now: float) -> list[Ticket]:
        started = []
        while lane := self._next_lane(now):
            slots = lane.ready[0].price.slots
            if self.held_slots and not fits(self.held_slots + slots, self.limit_slots):
                break  # a large page waits for its slots, and nobody passes it
            self._virtual = max(self._virtual, lane.tag.start)
            ticket = lane.run(now)
            self.begin(now, ticket)
            ticket.used_until = now
            self.held_slots += slots
            self.running += 1
            self.last_started_at = now
            started.append(ticket)
        self.in_use = any(lane.ready for lane in self._lanes.values())
        return started

    def _next_lane(self, now: float) -> Lane | None:
        """Start-time fair queueing again, over the classes."""
        chosen = None
        for lane in self._lanes.values():
            if not lane.ready:
                continue
            if not self._within_cap(now, lane, lane.ready[0].price.slots):
                lane.tag.join(self._virtual)  # it saves up no turns meanwhile
            elif chosen is None or lane.tag.start < chosen.tag.start:
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
        beside = min(self.held_slots, self.limit_slots - ticket.price.slots)
        service_s = ticket.price.alone_s * self._model.dilation(beside)
        return now + service_s > ticket.deadline

    def _service_s(self, prices: Sequence[Price]) -> float:
        """Predicted service of the longest page of a request, beside its others and as many more
        as wait."""
        slots = self.held_slots + sum(price.slots for price in prices)
        if slots > self.limit_slots or any(lane.pages for lane in self._lanes.values()):
            slots = self.limit_slots
        longest = max(prices, key=_alone_s, default=None)
        return longest.alone_s * self._model.dilation(slots - longest.slots) if longest else 0.0

    def _alone_s(self, prices: Sequence[Price], cost: float) -> float:
        """The time that a request takes at least, of a healthy engine for it alone: one that does
        better than it should is in health too."""
        longest_s = max(map(_alone_s, prices), default=0.0)
        factor = self._model.scale.factor
        return max(longest_s * min(1.0, factor), cost / (self.drain_rate * max(1.0, factor)))

    def _settle(self, now: float, ticket: Ticket) -> None:
        """What a page cost in the end: by the time that it held its slots, where nothing was
        counted; less what an engine that is slow or shared took more than it would alone."""
        held_s = max(0.0, now - ticket.used_until)
        self.account(now, ticket, held_s / self._model.dilation(self.load_slots(now, ticket)))
        ticket.extra = ticket.used - ticket.cost

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
        if lane.held_slots and not fits(lane.held_slots + slots, self._batch_cap()):
            return False
        if fits(self.held_slots + slots, self._batch_cap()):
            return True
        share = lane.policy.share / self._shares
        return lane.used_rate(now) < share * self.drain_rate

    def _batch_cap(self) -> float:
        reserved = min(self._reserved_slots, (self.limit_slots - 1) // 2)
        return max(1.0, min(self.limit_slots - reserved, self.batch_slots_max))

    def _rate(self, now: float, lane: Lane, drain: float) -> float:
        """Cost a second that a class can count on: its share of `drain`, or what the others
        leave."""
        used = sum(other.used_rate(now) for other in self._lanes.values() if other is not lane)
        rate = max(lane.policy.share / self._shares * drain, drain - used)
        if lane is self._batch:
            rate = min(rate, drain * self._batch_cap() / self.limit_slots)
        return rate


def _alone_s(price: Price) -> float:
    return price.alone_s
