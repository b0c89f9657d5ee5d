"""The stages of a page's way, and the one recorder that times them and adds up what they use.

A stage has one name, used alike in code, span, metric label, log field and Server-Timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum

from opentelemetry.trace import Tracer, get_current_span
from opentelemetry.util.types import Attributes

from hunyuan_ocr.telemetry.metrics import Metrics
from hunyuan_ocr.telemetry.usage import RequestUsage

Part = Callable[[], AbstractContextManager[None]]


class Stage(StrEnum):
    RECEIVE = "receive"
    INSPECT = "inspect"
    QUEUE = "queue"
    PREPARE = "prepare"
    ENGINE = "engine"


class StageRecorder:
    """Times the stages of one request; a stage that runs for many pages adds up.

    `usage` is what the request uses on its way.
    """

    def __init__(self, metrics: Metrics, tracer: Tracer, clock: Callable[[], float]) -> None:
        self._seconds = metrics.pages.stage_seconds
        self._tracer = tracer
        self._clock = clock
        self.usage = RequestUsage(metrics.pages)
        self.seconds: dict[Stage, float] = {}

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[None]:
        """Record a span, a histogram sample and the request's own sum for what runs inside."""
        with self.in_parts(stage) as part, part():
            yield

    @contextmanager
    def in_parts(self, stage: Stage) -> Iterator[Part]:
        """A stage that is interrupted: a span for each part, one sample of all at the end."""
        parts_s: list[float] = []

        @contextmanager
        def part() -> Iterator[None]:
            started = self._clock()
            with self._span(stage):
                try:
                    yield
                finally:
                    parts_s.append(self._clock() - started)
                    self.seconds[stage] = self.seconds.get(stage, 0.0) + parts_s[-1]

        try:
            yield part
        finally:
            self._seconds.labels(stage).observe(sum(parts_s))

    def page(self, index: int) -> AbstractContextManager[object]:
        """What runs inside is of the page `index`, from 0; in the task of that page alone."""
        return self._span("page", {"hunyuan_ocr.page.index": index})

    def _span(self, name: str, attributes: Attributes = None) -> AbstractContextManager[object]:
        """A child of the current span, where that is recorded at all."""
        if not get_current_span().is_recording():
            return nullcontext()
        # Exceptions are not recorded on the span: their messages may quote a caller's bytes.
        return self._tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        )

    def milliseconds(self, stage: Stage) -> float:
        return round(self.seconds.get(stage, 0.0) * 1e3, 1)

    def server_timing(self) -> str:
        """The value of a Server-Timing header, durations in milliseconds."""
        return ", ".join(f"{stage};dur={s * 1e3:.1f}" for stage, s in self.seconds.items())
