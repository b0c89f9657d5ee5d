"""What goes into admission and what comes out: requests, pages, refusals, moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from hunyuan_ocr.traffic.classes import Priority
from hunyuan_ocr.traffic.cost import Price


class State(Enum):
    """A page's way through admission, in this order; it may leave at any point."""

    BOOKED = auto()  # admitted, nobody waits for its turn yet
    WAITING = auto()
    CALLED = auto()  # being prepared
    READY = auto()
    RUNNING = auto()
    GONE = auto()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request wants: a price for each of its pages, all done by `deadline`.

    Without prices it asks only whether there is room, before its body is read.
    """

    priority: Priority
    tenant: str
    deadline: float
    prices: Sequence[Price] = ()


@dataclass(eq=False, slots=True)
class Ticket:
    """One page in admission, which alone changes it. `number` grows with arrival.

    `started_at` and `slot_seconds` are when its turn at the engine began, and what all pages
    together had held by then. `used` is the cost of what it has done by `used_until`, and `extra`
    what it cost in the end beyond its price; below zero, less.
    """

    number: int
    priority: Priority
    tenant: str
    deadline: float
    price: Price
    state: State = State.BOOKED
    started_at: float = 0.0
    slot_seconds: float = 0.0
    used: float = 0.0
    used_until: float = 0.0
    extra: float = 0.0

    @property
    def cost(self) -> float:
        return self.price.cost


Reason = Literal["queue_full", "deadline_unreachable", "time_too_short"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """`position` is how many pages would have been served before; times are seconds from now.

    `cost` is that of what was refused, or a usual page's where its price was not known yet.
    `time_too_short`: it could not even be done by a healthy engine that had nothing else to do,
    which takes `alone_s`.
    """

    reason: Reason
    position: int
    predicted_wait_s: float
    alone_s: float
    retry_after_s: float
    cost: float


@dataclass(frozen=True, slots=True)
class Moves:
    """Pages called to be prepared, pages given a slot, and pages dropped because they could no
    longer be done in time."""

    called: Sequence[Ticket]
    started: Sequence[Ticket]
    dropped: Sequence[Ticket]
