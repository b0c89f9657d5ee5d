"""Admission control before an engine of known speed, on a clock that is moved by hand."""

from __future__ import annotations

from collections import Counter
from random import Random

from hunyuan_ocr.traffic.adaptive import AdaptiveLimit, LimitOptions
from hunyuan_ocr.traffic.admission import Admission
from hunyuan_ocr.traffic.admission_control import AdmissionControl
from hunyuan_ocr.traffic.classes import DEFAULT_POLICIES, Priority
from hunyuan_ocr.traffic.cost import CostModel, Speed, Work
from hunyuan_ocr.traffic.degradation import Ladder, LadderOptions
from hunyuan_ocr.traffic.feedback import Feedback
from hunyuan_ocr.traffic.gate import Gate
from hunyuan_ocr.traffic.offered_load import OfferedLoad
from hunyuan_ocr.traffic.outputs import OutputTokens
from hunyuan_ocr.traffic.ratelimit import UNLIMITED, Quota, Quotas, RateLimiter
from hunyuan_ocr.traffic.tickets import Asked

LIMIT = 4
WORK = Work(100, 400, 100)


class Site:
    """Admission control before an engine that takes a second for a page, and reads four at once."""

    def __init__(self, requests: Quota = UNLIMITED, cost: Quota = UNLIMITED) -> None:
        self.now = 0.0
        self.engine_ready = True
        clock = self.clock
        model = CostModel(Speed(0.5, 0, 0, 0.005, contention=0), slot_tokens=1000)
        self.admission = Admission(
            model,
            DEFAULT_POLICIES,
            limit_slots=LIMIT,
            reserved_slots=1,
            pages_ahead=2,
            rng=Random(1),
        )
        self.heard: Counter[str] = Counter()
        self.offered = OfferedLoad(self.admission, clock, self._hear)
        limit = AdaptiveLimit(LimitOptions(floor=1, ceiling=LIMIT), 0.0)
        self.control = AdmissionControl(
            policies=DEFAULT_POLICIES,
            model=model,
            admission=self.admission,
            gate=Gate(self.admission, clock, self.offered.refused, lambda: self.engine_ready),
            limiter=RateLimiter(Quotas(requests, cost), None, clock=clock, rng=Random(1)),
            feedback=Feedback(self.admission, model, limit, {"text": OutputTokens(100)}),
            ladder=Ladder(LadderOptions()),
            offered=self.offered,
            clock=clock,
        )

    def clock(self) -> float:
        return self.now

    def _hear(self, outcome: str, engine_s: float) -> None:
        self.heard[outcome] += round(engine_s * 100)

    def asked(
        self,
        priority: Priority = Priority.STANDARD,
        pages: int = 1,
        time_s: float = 100.0,
        tenant: str = "one",
    ) -> Asked:
        price = self.control.price("text", WORK.visual_tokens, WORK.vit_patches)
        return Asked(priority, tenant, self.now + time_s, [price] * pages)
