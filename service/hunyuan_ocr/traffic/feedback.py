"""What served pages teach: prices, predictions, and how much may be in flight."""

from __future__ import annotations

from collections.abc import Mapping

from hunyuan_ocr.traffic.adaptive import AdaptiveLimit
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

    def price(
        self, task: str, visual_tokens: int, vit_patches: int, max_output_tokens: int | None = None
    ) -> Price:
        """`max_output_tokens` where a caller asks for a shorter answer than may be expected."""
        output = self._outputs[task].value
        if max_output_tokens is not None:
            output = min(output, max_output_tokens)
        return self._model.price(Work(visual_tokens, vit_patches, output))

    def served(self, now: float, ticket: Ticket, task: str, work: Work, *, trusted: bool) -> float:
        """A turn of a page ended, which still holds its slots; returns measured / reference.

        `work` with the tokens that were counted. `trusted` as for `CostModel.observe`.
        """
        measured_s = now - ticket.started_at
        sample = Sample(work, self._admission.load_slots(now, ticket), measured_s)
        reference_s = self._model.observe(now, sample, trusted=trusted)
        self._admission.account(now, ticket, self._model.reference.service_s(work, 0.0))
        self._outputs[task].observe(work.output_tokens)
        self._limit_from(now, measured_s, reference_s)
        return measured_s / reference_s

    def given_up(self, now: float, ticket: Ticket, work: Work) -> None:
        """A turn ended without an answer, of a page that still holds its slots: it took at least
        so long, which says something where it is longer than expected."""
        measured_s = now - ticket.started_at
        load_slots = self._admission.load_slots(now, ticket)
        reference_s = self._model.reference.service_s(work, load_slots)
        if measured_s > reference_s * self._model.scale.factor:
            self._model.scale.observe(now, reference_s, measured_s)
        if measured_s > reference_s:
            self._limit_from(now, measured_s, reference_s)

    def overloaded(self, now: float, ticket: Ticket) -> None:
        """The engine could not hold this page."""
        self._limit.overloaded(now, ticket.started_at)
        self._admission.limit_slots = self._limit.slots

    def preempted(self, now: float) -> None:
        """The engine took back memory from pages that it was reading."""
        self._limit.overloaded(now, self._admission.last_started_at)
        self._admission.limit_slots = self._limit.slots

    def derate(self, factor: float) -> None:
        """Take the limit down to `factor` of what it would be: the card is hot. 1: no longer."""
        self._limit.derate = factor
        self._admission.limit_slots = self._limit.slots

    def _limit_from(self, now: float, measured_s: float, reference_s: float) -> None:
        self._limit.observe(now, measured_s, reference_s, in_use=self._admission.in_use)
        self._admission.limit_slots = self._limit.slots
