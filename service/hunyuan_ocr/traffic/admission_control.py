"""Admission control: the one door that every request passes on its way to the engine.

Refusals come in the order of what they cost: a full queue before the body is read (`check`), a
deadline out of reach once the pages are known, the caller's quota last, so that what the queue
refuses uses up nothing of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from hunyuan_ocr.errors import EngineOverloaded
from hunyuan_ocr.traffic.admission import Admission
from hunyuan_ocr.traffic.calibration import PRIOR, calibrated
from hunyuan_ocr.traffic.classes import ClassPolicies, Priority, timeout_s
from hunyuan_ocr.traffic.cost import CostModel, Price, Sample, Work
from hunyuan_ocr.traffic.degradation import Ladder, Step
from hunyuan_ocr.traffic.feedback import Feedback
from hunyuan_ocr.traffic.gate import Gate
from hunyuan_ocr.traffic.offered_load import OfferedLoad
from hunyuan_ocr.traffic.ratelimit import RateLimiter
from hunyuan_ocr.traffic.tickets import Asked, Ticket

# In batch nobody waits for the answer: its long queue is no reason to read worse.
_CALLERS_WAIT = (Priority.INTERACTIVE, Priority.STANDARD)


class AdmissionControl:
    """Admits requests, gives their pages turns, and learns from how they went.

    `clock` is the event loop's, in seconds; used by one loop.
    """

    def __init__(
        self,
        *,
        policies: ClassPolicies,
        model: CostModel,
        admission: Admission,
        gate: Gate,
        limiter: RateLimiter,
        feedback: Feedback,
        ladder: Ladder,
        offered: OfferedLoad,
        clock: Callable[[], float],
    ) -> None:
        self._policies = policies
        self._model = model
        self.admission = admission
        self._gate = gate
        self.limiter = limiter
        self._feedback = feedback
        self._ladder = ladder
        self.offered = offered
        self._clock = clock

    def check(self, possible: Iterable[Priority], tenant: str) -> None:
        """Raise QueueFull where there is no room in any class that a request may turn out to be.

        Before its body is read; nothing is known of its pages.
        """
        latest = self._clock() + self.timeout_s(Priority.BATCH, None)
        self._gate.check(*(Asked(priority, tenant, latest) for priority in possible))

    def timeout_s(self, priority: Priority, asked_s: float | None) -> float:
        """Time for a whole request."""
        return timeout_s(self._policies, priority, asked_s)

    def price(self, task: str, visual_tokens: int, vit_patches: int) -> Price:
        return self._feedback.price(task, visual_tokens, vit_patches)

    @asynccontextmanager
    async def admit(self, asked: Asked) -> AsyncIterator[Sequence[Ticket]]:
        """Book every page of a request while inside.

        Raises QueueFull, DeadlineUnreachable, QuotaExceeded.
        """
        cost = sum(price.cost for price in asked.prices)
        self._gate.check(asked)
        await self.limiter.take(asked.tenant, cost)
        with self._gate.admit(asked) as tickets:
            self.offered.admitted(cost)
            yield tickets

    def turn(self, ticket: Ticket) -> AbstractAsyncContextManager[None]:
        """As `Gate.turn`."""
        return self._gate.turn(ticket)

    @asynccontextmanager
    async def engine(self, ticket: Ticket) -> AsyncIterator[None]:
        """As `Gate.engine`; hears of an engine that has too much."""
        async with self._gate.engine(ticket):
            try:
                yield
            except EngineOverloaded:
                self._feedback.overloaded(self._clock(), ticket, "unavailable")
                raise

    def served(self, ticket: Ticket, task: str, work: Work, *, trusted: bool) -> float:
        """A page was answered and still holds its slots; returns measured / reference seconds.

        `work` with the tokens that were counted, `trusted` unless it went another way than usual.
        """
        trusted = trusted and self._ladder.step < Step.LOWER_PIXELS
        ratio = self._feedback.served(self._clock(), ticket, task, work, trusted=trusted)
        self._gate.advance()
        return ratio

    def preempted(self) -> None:
        """The engine took back memory from pages that it was reading."""
        self._feedback.preempted(self._clock())

    def derate(self, factor: float) -> None:
        """As `Feedback.derate`."""
        self._feedback.derate(factor)
        self._gate.advance()

    def recalibrate(self, samples: Sequence[Sample]) -> None:
        """These pages were read by an engine process not met before."""
        self._model.recalibrate(calibrated(PRIOR, samples))
        self._gate.advance()

    def step(self) -> Step:
        """Look at the queues, once a second; the step of the ladder that is in force."""
        pressure = max(map(self.admission.fullness, _CALLERS_WAIT))
        step = self._ladder.observe(self._clock(), pressure)
        self.admission.batch_slots_max = self._ladder.measures.batch_slots_max
        self._gate.advance()
        return step

    @property
    def batch_shrunk(self) -> bool:
        return self._ladder.step >= Step.SHRINK_BATCH

    @property
    def pixel_factor(self) -> float:
        """The part of the usual pixels that pages are shown to the engine with."""
        return self._ladder.measures.pixel_factor
