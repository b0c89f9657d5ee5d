"""Admission control: the one door that every request passes on its way to the engine.

Refusals come in the order of what they cost: a full queue and a quota that is used up before the
body is read (`check`), a deadline out of reach once the pages are known, the caller's quota last,
so that what the queue refuses uses up nothing of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from hunyuan_ocr.errors import EngineOverloaded
from hunyuan_ocr.traffic.admission import Admission
from hunyuan_ocr.traffic.calibration import PRIOR, calibrated
from hunyuan_ocr.traffic.classes import ClassPolicies, Priority, timeout_s
from hunyuan_ocr.traffic.cost import CostModel, Price, Sample, Work
from hunyuan_ocr.traffic.degradation import FEWER_PIXELS, Ladder, Step
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
        self._spared = (1.0, False, True)

    def check(self, possible: Iterable[Priority], tenant: str) -> None:
        """Raise QueueFull where there is no room in any class that a request may turn out to be,
        and QuotaExceeded where nothing is left of the caller's quota.

        Before its body is read; nothing is known of its pages.
        """
        self.limiter.check(tenant)
        self._gate.check(*self._any_of(possible, tenant))

    def has_room(self, possible: Iterable[Priority], tenant: str) -> bool:
        """Whether `check` finds room in a class; raises QuotaExceeded as it does."""
        self.limiter.check(tenant)
        return self._gate.has_room(*self._any_of(possible, tenant))

    def _any_of(self, possible: Iterable[Priority], tenant: str) -> list[Asked]:
        latest = self._clock() + self.timeout_s(Priority.BATCH, None)
        return [Asked(priority, tenant, latest) for priority in possible]

    def timeout_s(self, priority: Priority, asked_s: float | None) -> float:
        """Time for a whole request."""
        return timeout_s(self._policies, priority, asked_s)

    def price(
        self, task: str, visual_tokens: int, vit_patches: int, max_output_tokens: int | None = None
    ) -> Price:
        """As `Feedback.price`."""
        return self._feedback.price(task, visual_tokens, vit_patches, max_output_tokens)

    @asynccontextmanager
    async def admit(self, asked: Asked) -> AsyncIterator[Sequence[Ticket]]:
        """Book every page of a request while inside.

        Raises QueueFull, DeadlineUnreachable, QuotaExceeded.
        """
        cost = sum(price.cost for price in asked.prices)
        taken: Sequence[Ticket] = ()
        try:
            with self._gate.admit(asked) as tickets:
                await self.limiter.take(asked.tenant, cost)
                taken = tickets
                self.offered.admitted(cost)
                yield tickets
        finally:
            self.limiter.settle(asked.tenant, sum(ticket.extra for ticket in taken))

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
                self._feedback.overloaded(self._clock(), ticket)
                raise

    def begin(self, ticket: Ticket) -> None:
        """As `Admission.begin`."""
        self.admission.begin(self._clock(), ticket)

    def excuse(self, ticket: Ticket, seconds: float) -> None:
        """As `Admission.excuse`."""
        self.admission.excuse(ticket, seconds)

    def served(self, ticket: Ticket, task: str, work: Work) -> float:
        """A turn of a page ended, which still holds its slots; returns measured / reference.

        `work` with the tokens that were counted.
        """
        _, _, well = self._spared
        trusted = well and self._ladder.step < Step.LOWER_PIXELS
        ratio = self._feedback.served(self._clock(), ticket, task, work, trusted=trusted)
        self._gate.advance()
        return ratio

    def given_up(self, ticket: Ticket, work: Work) -> None:
        """A turn ended at its deadline with `work` done: it took at least so long."""
        self._feedback.given_up(self._clock(), ticket, work)
        self._gate.advance()

    def preempted(self) -> None:
        """The engine took back memory from pages that it was reading."""
        self._feedback.preempted(self._clock())

    def expected_s(self, ticket: Ticket, work: Work) -> float:
        """What the reference gives for `work` in the running turn of a page."""
        load_slots = self.admission.load_slots(self._clock(), ticket)
        return self._model.reference.service_s(work, load_slots)

    def spare(self, factor: float, *, fewer_pixels: bool, well: bool) -> None:
        """The engine is given `factor` of its slots, 1 for all; unless it is `well`, how fast it
        is teaches nothing of its health."""
        spared = (factor, fewer_pixels, well)
        if spared == self._spared:
            return
        self._spared = spared
        self._feedback.derate(factor)
        self._gate.advance()

    def recalibrate(self, samples: Sequence[Sample]) -> None:
        """These pages were read by an engine process not met before."""
        self._model.recalibrate(calibrated(PRIOR, samples))
        self._gate.advance()

    def step(self) -> Step:
        """Look at the queues, once a second; the step of the ladder that is in force.

        Waits are predicted a little more by the reference each time: an engine from which nothing
        is heard, because all is refused, is tried again.
        """
        now = self._clock()
        self.offered.observe()
        self._model.scale.observe(now, 0.0, 0.0)
        pressure = max(map(self.admission.pressure, _CALLERS_WAIT))
        step = self._ladder.observe(now, pressure)
        self.admission.batch_slots_max = self._ladder.measures.batch_slots_max
        self._gate.advance()
        return step

    @property
    def batch_shrunk(self) -> bool:
        return self._ladder.step >= Step.SHRINK_BATCH

    @property
    def pixel_factor(self) -> float:
        """The part of the usual pixels that pages are shown to the engine with."""
        _, fewer_pixels, _ = self._spared
        factor = self._ladder.measures.pixel_factor
        return min(factor, FEWER_PIXELS) if fewer_pixels else factor
