"""The gate before the engine: the asynchronous shell around `Admission`.

    with gate.admit(asked) as tickets:              # refuses at once, or books every page
        async with gate.turn(tickets[0]):           # waits until it may be prepared
            page = await prepare()
            async with gate.engine(tickets[0]):     # waits for slots and holds them
                ...

Whatever happens inside, cancellation included, leaving gives everything back. Used by one loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from hunyuan_ocr.errors import Busy, DeadlineExceeded, DeadlineUnreachable, QueueFull
from hunyuan_ocr.traffic.admission import Admission
from hunyuan_ocr.traffic.tickets import Asked, Refusal, State, Ticket

_REFUSALS: dict[str, type[Busy]] = {
    "queue_full": QueueFull,
    "deadline_unreachable": DeadlineUnreachable,
    "time_too_short": DeadlineUnreachable,
}


class Gate:
    """Admits requests and wakes their pages when it is their turn.

    `on_refusal` hears of each refusal once. Nothing is sent unless `engine_ready`: it is asked
    whenever something moves, and by `advance`.
    """

    def __init__(
        self,
        admission: Admission,
        clock: Callable[[], float],
        on_refusal: Callable[[Refusal], None],
        engine_ready: Callable[[], bool],
    ) -> None:
        self._admission = admission
        self._clock = clock
        self._on_refusal = on_refusal
        self._engine_ready = engine_ready
        self._waiting: dict[Ticket, asyncio.Future[None]] = {}

    def check(self, *possible: Asked) -> None:
        """Raise QueueFull or DeadlineUnreachable where all that a request may be is refused now."""
        if not self.has_room(*possible):
            refusal = self._admission.refusal(self._clock(), possible[-1])
            if refusal is not None:
                raise self._refused(refusal)

    def has_room(self, *possible: Asked) -> bool:
        """Whether something that a request may be would be admitted now."""
        now = self._clock()
        return any(self._admission.has_room(now, asked) for asked in possible)

    @contextmanager
    def admit(self, asked: Asked) -> Iterator[Sequence[Ticket]]:
        """Book every page of a request while inside; raises QueueFull or DeadlineUnreachable."""
        tickets = self._admission.submit(self._clock(), asked)
        if isinstance(tickets, Refusal):
            raise self._refused(tickets)
        try:
            yield tickets
        finally:
            for ticket in tickets:
                self._admission.leave(self._clock(), ticket)
            self.advance()

    @asynccontextmanager
    async def turn(self, ticket: Ticket) -> AsyncIterator[None]:
        """Wait until a booked page may be prepared; a page has one turn.

        Raises DeadlineExceeded where it can no longer be done in time.
        """
        try:
            self._admission.join(ticket)
            await self._until(ticket, State.CALLED)
            yield
        finally:
            self._leave(ticket)

    @asynccontextmanager
    async def engine(self, ticket: Ticket) -> AsyncIterator[None]:
        """Inside its turn, wait for the slots of a prepared page and hold them.

        Raises DeadlineExceeded where it can no longer be done in time.
        """
        try:
            self._admission.make_ready(ticket)
            await self._until(ticket, State.RUNNING)
            yield
        finally:
            self._leave(ticket)

    def advance(self) -> None:
        """Let go whose turn it is; to be called too when the limit has grown."""
        moves = self._admission.advance(self._clock(), engine_ready=self._engine_ready())
        for ticket in (*moves.called, *moves.started, *moves.dropped):
            future = self._waiting.get(ticket)
            if future is not None and not future.done():
                future.set_result(None)

    async def _until(self, ticket: Ticket, state: State) -> None:
        self.advance()
        if ticket.state not in (state, State.GONE):
            self._waiting[ticket] = asyncio.get_running_loop().create_future()
            try:
                await self._waiting[ticket]
            finally:
                del self._waiting[ticket]
        if ticket.state is State.GONE:
            raise DeadlineExceeded("the page's turn would have come too late")

    def _leave(self, ticket: Ticket) -> None:
        self._admission.leave(self._clock(), ticket)
        self.advance()

    def _refused(self, refusal: Refusal) -> Busy:
        self._on_refusal(refusal)
        wait_s = round(refusal.predicted_wait_s, 1)
        detail = f"{refusal.position} pages are before it: {wait_s} s of waiting"
        if refusal.reason == "time_too_short":
            detail = f"it takes {refusal.alone_s:.2g} s or more; ask for a larger timeout_s"
        return _REFUSALS[refusal.reason](
            detail,
            retry_after_s=round(refusal.retry_after_s, 1),
            queue_position=refusal.position,
            predicted_wait_s=wait_s,
        )
