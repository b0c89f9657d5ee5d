"""A page's turns at the engine: what they will cost, the slots they need, what they teach."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial

from prometheus_client import Histogram

from hunyuan_ocr.documents.document import PageSize, PreparedImage, PrepareOptions
from hunyuan_ocr.documents.layout import images
from hunyuan_ocr.engine_work import work_of
from hunyuan_ocr.engines.base import Engine, TokenUsage
from hunyuan_ocr.recognise import OnText, Recognition, TextEvent, TextRestart, recognise
from hunyuan_ocr.tasks.prompts import TaskRequest
from hunyuan_ocr.telemetry.stages import Part, Stage, StageRecorder
from hunyuan_ocr.telemetry.usage import RequestUsage
from hunyuan_ocr.traffic.admission_control import AdmissionControl
from hunyuan_ocr.traffic.classes import Priority
from hunyuan_ocr.traffic.cost import Price, Work
from hunyuan_ocr.traffic.engine_guard import EngineGuard, EngineTurn
from hunyuan_ocr.traffic.tickets import Asked, Ticket

# The name under which requests that are passed through are priced.
PASSED_THROUGH = "passed_through"
# Time lost to a caller who takes text slowly is not the engine's: beyond this part of a turn,
# what was measured says nothing.
_HELD_BACK_MAX = 0.05
# A stream begins with who speaks, and says when it is over.
_PIECES_WITHOUT_TOKEN = 2
# Timers of the event loop come up to so much before their time.
_TIMER_EARLY_S = 0.002


@dataclass(frozen=True, slots=True)
class PassedThrough:
    """A request that goes to the engine as it is; `deadline` by the event loop's clock.

    `max_output_tokens` is the longest answer that its caller wants, None for any. Unless `judged`,
    how long it takes is the caller's doing and says nothing of the engine.
    """

    tenant: str
    priority: Priority
    deadline: float
    visual_tokens: int
    vit_patches: int
    max_output_tokens: int | None = None
    judged: bool = True


class Taker:
    """The caller as one who takes text while it is generated, and may hold the engine back."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._held_s = 0.0

    @contextmanager
    def takes(self) -> Iterator[None]:
        """While something is given to the caller."""
        began = self._clock()
        try:
            yield
        finally:
            self._held_s += self._clock() - began

    def held_back(self, since: float) -> bool:
        """Whether what was measured since then says more of the caller than of the engine."""
        return self._held_s > _HELD_BACK_MAX * (self._clock() - since)


@dataclass(slots=True)
class Passing:
    """A request that has the engine; `usage` is to be set to what the engine counted, `pieces` to
    how many came of a stream, one a token, `finish_reason` to the engine's word for its end."""

    taker: Taker = field(default_factory=Taker)
    usage: TokenUsage | None = None
    pieces: int = 0
    finish_reason: str | None = None

    @property
    def took(self) -> TokenUsage:
        """Of a stream that was cut short, or whose caller wants no count, its pieces."""
        return self.usage or TokenUsage(output=max(0, self.pieces - _PIECES_WITHOUT_TOKEN))


class EngineTurns:
    """Prices pages, and has them read while they hold what they were priced at."""

    def __init__(
        self,
        engine: Engine,
        control: AdmissionControl,
        guard: EngineGuard,
        ratio: Histogram | None,
    ) -> None:
        """`ratio`: of the time that pages take to that they should; None: not recorded."""
        self._engine = engine
        self._control = control
        self._guard = guard
        self._ratio = ratio

    def check(self) -> None:
        """Raise what every page is refused with now."""
        self._check_engine()
        self._guard.check()

    def _check_engine(self) -> None:
        if refusal := self._engine.refusal():
            raise refusal.for_caller()

    def price(self, task: TaskRequest, page: PageSize, options: PrepareOptions) -> Price:
        """What a page costs that is prepared in this way, told by its size."""
        turns, size = images(page, options)
        work = self._work(size, 0)
        price = self._control.price(task.task, work.visual_tokens, work.vit_patches)
        return price.times(turns)

    @asynccontextmanager
    async def hold(self, ticket: Ticket, stages: StageRecorder, waits: Part) -> AsyncIterator[None]:
        """Wait for the slots of a page in its turn, and hold them; errors as `Gate.engine`.

        `waits`: its waiting, of which this is a part.
        """
        async with AsyncExitStack() as after, AsyncExitStack() as slots:
            with waits():
                await slots.enter_async_context(self._control.engine(ticket))
            # What it used is known when it has given its slots back.
            after.callback(lambda: stages.usage.add_turn(ticket.cost, ticket.used))
            with stages.stage(Stage.ENGINE):
                yield

    async def read(
        self,
        ticket: Ticket,
        usage: RequestUsage,
        task: TaskRequest,
        request_id: str,
        image: PreparedImage,
        on_text: OnText | None,
    ) -> Recognition:
        """Read an image of a page that holds its slots; errors as `recognise`.

        `usage` hears of the tokens that it took.
        """
        listener = _Listener(on_text, usage)
        capabilities = self._engine.capabilities
        # To compile what an answer must look like is the caller's doing.
        judged = task.json_schema is None

        def work(output_tokens: int) -> Work:
            return self._work(PageSize(image.width, image.height), output_tokens)

        def so_far() -> Work | None:
            return work(listener.pieces) if judged and not listener.restarted else None

        async with self._turn(ticket, listener.taker, so_far) as turn:
            read = await recognise(
                self._engine,
                image,
                task,
                generation=capabilities.generation,
                request_id=request_id,
                max_output_tokens=capabilities.max_output_tokens,
                on_text=listener.hear,
                # An engine that is no language model has no tokens, and its pieces are none.
                on_usage=listener.count if capabilities.prompted else None,
            )
            held_back = listener.taker.held_back(ticket.started_at)
            if not judged or read.attempts > 1 or held_back:
                turn.unjudged(_now())
            else:
                turn.answered(_now(), work(read.usage.output), listener.first_token_at)
                self._served(ticket, task.task, work(read.usage.output))
        return read

    @asynccontextmanager
    async def passed_through(
        self, asked: PassedThrough, stages: StageRecorder
    ) -> AsyncIterator[Passing]:
        """Hold the engine for a request that is not prepared here.

        Raises what `Pipeline.check` raises for the engine, and errors of admission.
        """
        self.check()
        price = self._control.price(
            PASSED_THROUGH, asked.visual_tokens, asked.vit_patches, asked.max_output_tokens
        )
        wanted = Asked(asked.priority, asked.tenant, asked.deadline, (price,))
        async with self._control.admit(wanted) as (ticket,), AsyncExitStack() as booked:
            waits = booked.enter_context(stages.in_parts(Stage.QUEUE))
            with waits():
                await booked.enter_async_context(self._control.turn(ticket))
            async with self.hold(ticket, stages, waits):
                passing = Passing()
                so_far = partial(self._passed_so_far, asked, passing)
                async with self._turn(ticket, passing.taker, so_far) as turn:
                    try:
                        yield passing
                    finally:
                        took = passing.took
                        stages.usage.add_tokens(took.prompt, took.output)
                    self._passed(asked, ticket, turn, passing)

    def _passed(
        self, asked: PassedThrough, ticket: Ticket, turn: EngineTurn, passing: Passing
    ) -> None:
        usage = passing.usage
        held_back = passing.taker.held_back(ticket.started_at)
        if usage is None or held_back or not asked.judged:
            turn.unjudged(_now())
        else:
            work = Work(asked.visual_tokens, asked.vit_patches, usage.output)
            turn.answered(_now(), work, None)
            self._served(ticket, PASSED_THROUGH, work)

    def _passed_so_far(self, asked: PassedThrough, passing: Passing) -> Work | None:
        """Of an answer that comes whole as much as it may have been at most."""
        if not asked.judged:
            return None
        most = asked.max_output_tokens or self._engine.capabilities.max_output_tokens
        return Work(asked.visual_tokens, asked.vit_patches, passing.pieces or most)

    @asynccontextmanager
    async def _turn(
        self, ticket: Ticket, taker: Taker, so_far: Callable[[], Work | None]
    ) -> AsyncIterator[EngineTurn]:
        """One request to the engine; guard and admission hear of one whose time ran out in it.

        `so_far`: the work done until now; None where that tells nothing of the engine.
        """
        # An engine that is known to be down is a better reason than the breaker that its broken
        # answers opened.
        self._check_engine()
        async with self._guard.turn(ticket) as turn:
            try:
                yield turn
            except asyncio.CancelledError:
                # Or else the client left, which says nothing.
                overdue = _now() >= ticket.deadline - _TIMER_EARLY_S
                if overdue and not taker.held_back(ticket.started_at) and (work := so_far()):
                    turn.overdue(_now(), work)
                    self._control.given_up(ticket, work)
                raise

    def _work(self, size: PageSize, output_tokens: int) -> Work:
        return work_of(self._engine.capabilities, size.width, size.height, output_tokens)

    def _served(self, ticket: Ticket, task: str, work: Work) -> None:
        ratio = self._control.served(ticket, task, work)
        if self._ratio is not None:
            self._ratio.observe(ratio)


class _Listener:
    """Hears text as it is generated, for a caller or only for when it begins, and what it took."""

    def __init__(self, on_text: OnText | None, usage: RequestUsage) -> None:
        self._on_text = on_text
        self._usage = usage
        self._first_at = 0.0
        self.pieces = 0  # an engine sends one a token
        self.restarted = False
        self.taker = Taker()

    @property
    def first_token_at(self) -> float | None:
        """None where the text came at once."""
        return self._first_at if self.pieces > 1 else None

    async def hear(self, event: TextEvent) -> None:
        if not self.pieces:
            self._first_at = _now()
        self.pieces += 1
        if isinstance(event, TextRestart):
            self.restarted = True
            self._usage.add_retry(event.reason)
        if self._on_text is not None:
            with self.taker.takes():
                await self._on_text(event)

    def count(self, took: TokenUsage) -> None:
        self._usage.add_tokens(took.prompt, took.output)


def _now() -> float:
    return asyncio.get_running_loop().time()
