"""What stands before the engine: nothing, a semaphore, the engine's own limit, or this service."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol

from benchmarks.simulator.calibration import calibrated_speed
from benchmarks.simulator.engine import Engine, Sequence
from benchmarks.simulator.events import Timeline
from benchmarks.simulator.parameters import SidecarParameters
from benchmarks.simulator.workload import KINDS, Request
from hunyuan_ocr.traffic.adaptive import AdaptiveLimit, LimitOptions
from hunyuan_ocr.traffic.admission import Admission
from hunyuan_ocr.traffic.classes import DEFAULT_POLICIES
from hunyuan_ocr.traffic.cost import CostModel
from hunyuan_ocr.traffic.feedback import Feedback
from hunyuan_ocr.traffic.outputs import OutputTokens
from hunyuan_ocr.traffic.tickets import Asked, Refusal, State, Ticket

Answered = Callable[[Request], None]
Refused = Callable[[Request, float | None], None]  # with seconds to come back after, if told
SLOT_TOKENS = 2048


class Policy(Protocol):
    """Takes requests in; later answers or refuses each, unless it is abandoned before."""

    def arrive(self, request: Request) -> None: ...
    def abandon(self, request: Request) -> None: ...


class Naked:
    """Everything goes to the engine at once. With `max_queued` set: its own limit."""

    def __init__(self, engine: Engine, answered: Answered, refused: Refused) -> None:
        self._engine = engine
        self._answered = answered
        self._refused = refused
        self._inside: dict[Request, Sequence] = {}

    def arrive(self, request: Request) -> None:
        sequence = self._engine.submit(
            request.work, request.kind.megapixels, partial(self._done, request)
        )
        if sequence is None:
            self._refused(request, None)
        else:
            self._inside[request] = sequence

    def abandon(self, request: Request) -> None:
        self._engine.abort(self._inside.pop(request))

    def _done(self, request: Request) -> None:
        del self._inside[request]
        self._answered(request)


class Semaphore:
    """At most `limit` in the engine, the others wait in line until their client gives up."""

    def __init__(
        self, engine: Engine, answered: Answered, refused: Refused, limit: int = 16
    ) -> None:
        self._engine = Naked(engine, self._done, refused)
        self._answered = answered
        self._free = limit
        self._line: deque[Request] = deque()
        self._gone: set[Request] = set()
        self._inside: set[Request] = set()

    def arrive(self, request: Request) -> None:
        self._line.append(request)
        self._let_in()

    def abandon(self, request: Request) -> None:
        if request in self._inside:
            self._engine.abandon(request)
            self._leave(request)
        else:
            self._gone.add(request)

    def _let_in(self) -> None:
        while self._free and self._line:
            request = self._line.popleft()
            if request in self._gone:
                self._gone.remove(request)
                continue
            self._free -= 1
            self._inside.add(request)
            self._engine.arrive(request)

    def _done(self, request: Request) -> None:
        self._leave(request)
        self._answered(request)

    def _leave(self, request: Request) -> None:
        self._inside.remove(request)
        self._free += 1
        self._let_in()


class Service:
    """The real admission, prices and adaptive limit, driven in virtual time."""

    def __init__(
        self,
        timeline: Timeline,
        engine: Engine,
        answered: Answered,
        refused: Refused,
        *,
        parameters: SidecarParameters,
        rng: Random,
    ) -> None:
        self._timeline = timeline
        self._engine = engine
        self._answered = answered
        self._refused = refused
        self._parameters = parameters
        model = CostModel(calibrated_speed(engine.parameters), SLOT_TOKENS)
        self.admission = Admission(
            model,
            DEFAULT_POLICIES,
            limit_slots=parameters.limit_slots,
            reserved_slots=parameters.reserved_slots,
            pages_ahead=parameters.decode_workers,
            rng=rng,
        )
        limits = LimitOptions(parameters.floor_slots, parameters.limit_slots)
        self._feedback = Feedback(
            self.admission,
            model,
            AdaptiveLimit(limits, timeline.now),
            {kind.name: OutputTokens(kind.output_median) for kind in KINDS},
        )
        self._requests: dict[Ticket, Request] = {}
        self._tickets: dict[Request, Ticket] = {}
        self._sequences: dict[Ticket, Sequence] = {}
        self._to_prepare: deque[Ticket] = deque()
        self._preparing = 0

    def arrive(self, request: Request) -> None:
        work = request.work
        price = self._feedback.price(request.kind.name, work.visual_tokens, work.vit_patches)
        asked = Asked(request.priority, request.tenant, request.deadline, (price,))
        tickets = self.admission.submit(self._timeline.now, asked)
        if isinstance(tickets, Refusal):
            self._refused(request, tickets.retry_after_s)
            return
        self._requests[tickets[0]] = request
        self._tickets[request] = tickets[0]
        self.admission.join(tickets[0])
        self._advance()

    def abandon(self, request: Request) -> None:
        ticket = self._tickets[request]
        self._leave(ticket)
        if sequence := self._sequences.pop(ticket, None):
            self._engine.abort(sequence)
        self._advance()

    def _advance(self) -> None:
        moves = self.admission.advance(self._timeline.now)
        self._to_prepare.extend(moves.called)
        for ticket in moves.started:
            self._send(ticket)
        for ticket in moves.dropped:
            request = self._requests[ticket]
            self._leave(ticket)
            self._refused(request, None)
        self._prepare()

    def _prepare(self) -> None:
        while self._to_prepare and self._preparing < self._parameters.decode_workers:
            ticket = self._to_prepare.popleft()
            if ticket.state is State.CALLED:
                self._preparing += 1
                megapixels = self._requests[ticket].kind.megapixels
                seconds = self._parameters.prepare_megapixel_s * megapixels
                self._timeline.after(seconds, partial(self._prepared, ticket))

    def _prepared(self, ticket: Ticket) -> None:
        self._preparing -= 1
        if ticket.state is State.CALLED:
            self.admission.make_ready(ticket)
        self._advance()

    def _send(self, ticket: Ticket) -> None:
        request = self._requests[ticket]
        sequence = self._engine.submit(
            request.work, request.kind.megapixels, partial(self._done, ticket)
        )
        assert sequence is not None
        self._sequences[ticket] = sequence

    def _done(self, ticket: Ticket) -> None:
        request = self._requests[ticket]
        self._feedback.served(
            self._timeline.now, ticket, request.kind.name, request.work, trusted=True
        )
        del self._sequences[ticket]
        self._leave(ticket)
        self._answered(request)
        self._advance()

    def _leave(self, ticket: Ticket) -> None:
        self.admission.leave(self._timeline.now, ticket)
        del self._tickets[self._requests.pop(ticket)]
