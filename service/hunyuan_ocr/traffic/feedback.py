"""What served pages teach: prices, predictions, and how much may be in flight."""

from __future__ import annotations

from collections.abc import Mapping

from hunyuan_ocr.traffic.adaptive import AdaptiveLimit, Overload
from hunyuan_ocr.traffic.admission import Admission
from hunyuan_ocr.traffic.cost import CostModel, Price, Sample, Work
from hunyuan_ocr.traffic.outputs import OutputTokens
from hunyuan_ocr.traffic.tickets import Ticket


class Feedback:
    """Prices pages of each task, and hears how they went. `outputs` has every task."""

    def __init__(
        self,
        admission: Admission,
        model: CostModel,
        limit: AdaptiveLimit,
        outputs: Mapping[str, OutputTokens],
    ) -> None:
        self._admission = admission
        self._model = model
        self._limit = limit
        self._outputs = outputs

    def price(self, task: str, visual_tokens: int, vit_patches: int) -> Price:
        return self._model.price(Work(visual_tokens, vit_patches, self._outputs[task].value))

    def served(self, now: float, ticket: Ticket, task: str, work: Work, *, trusted: bool) -> float:
        """A page was answered and still holds its slots; returns measured / reference seconds.

        `work` with the tokens that were counted. `trusted` as for `CostModel.observe`.
        """
        measured_s = now - ticket.started_at
        sample = Sample(work, self._admission.load_slots(now, ticket), measured_s)
        reference_s = self._model.observe(now, ticket.price, sample, trusted=trusted)
        self._outputs[task].observe(work.output_tokens)
        self._limit.observe(now, measured_s, reference_s, self._admission.held_slots)
        self._admission.limit_slots = self._limit.slots
        return measured_s / reference_s

    def overloaded(self, now: float, ticket: Ticket, cause: Overload) -> None:
        """The engine could not hold this page."""
        self._limit.overloaded(now, ticket.started_at, cause)
        self._admission.limit_slots = self._limit.slots

    def preempted(self, now: float) -> None:
        """The engine took back memory from pages that it was reading."""
        self._limit.overloaded(now, self._admission.last_started_at, "preemption")
        self._admission.limit_slots = self._limit.slots

    def derate(self, factor: float) -> None:
        """Take the limit down to `factor` of what it would be: the card is hot. 1: no longer."""
        self._limit.derate = factor
        self._admission.limit_slots = self._limit.slots
