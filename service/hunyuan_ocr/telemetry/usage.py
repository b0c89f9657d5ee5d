"""What one request used: counted here once, for its usage record and for the metrics alike."""

from __future__ import annotations

from hunyuan_ocr.telemetry.metrics import PageMetrics

NO_CLASS = "none"
_MILLIONTHS = 1_000_000


class RequestUsage:
    """Adds up what a request uses; whatever is added here is added to the metrics too.

    Pixels and slot seconds are whole millionths: so sums over records equal the metrics to the
    last digit. `priority` is the request's class, NO_CLASS until it is known; `had_engine` says
    that it held slots of the engine.
    """

    __slots__ = (
        "_metrics",
        "_pages",
        "_pages_failed",
        "_pixels",
        "_slot_millionths",
        "_tokens",
        "had_engine",
        "priority",
    )

    def __init__(self, metrics: PageMetrics) -> None:
        self._metrics = metrics
        self._pages = self._pages_failed = self._pixels = self._slot_millionths = 0
        self._tokens = {"prompt": 0, "output": 0}
        self.priority: str = NO_CLASS
        self.had_engine = False

    def page_read(self, task: str, engine: str, pixels: int, reason: str, degraded: bool) -> None:
        """A page came to its end; `pixels` of its source, `reason` why its text ended."""
        self._pages += 1
        self._pixels += pixels
        self._metrics.outcomes.labels(task, engine, "ok").inc()
        self._metrics.finished.labels(task, reason).inc()
        self._metrics.megapixels.inc(pixels / _MILLIONTHS)
        self._metrics.degraded.inc(degraded)

    def page_failed(self, task: str, engine: str, code: str) -> None:
        self._pages_failed += 1
        self._metrics.outcomes.labels(task, engine, code).inc()

    def add_tokens(self, prompt: int, output: int) -> None:
        """Of one answer of the engine, whole or not."""
        for direction, count in (("prompt", prompt), ("output", output)):
            self._tokens[direction] += count
            self._metrics.tokens.labels(direction).inc(count)

    def add_turn(self, predicted: float, used: float) -> None:
        """A page gave its slots of the engine back; its price and what it took, in slot seconds."""
        self.had_engine = True
        millionths = round(used * _MILLIONTHS)
        self._slot_millionths += millionths
        self._metrics.slot_seconds.labels("predicted").inc(predicted)
        self._metrics.slot_seconds.labels("used").inc(millionths / _MILLIONTHS)

    def add_retry(self, reason: str) -> None:
        """The engine is asked for another answer."""
        self._metrics.retries.labels(reason).inc()

    def record(self) -> dict[str, object]:
        """What was used so far, as the end of a usage record."""
        return {
            "pages": self._pages,
            "pages_failed": self._pages_failed,
            "megapixels": self._pixels / _MILLIONTHS,
            "prompt_tokens": self._tokens["prompt"],
            "output_tokens": self._tokens["output"],
            "engine_slot_seconds": self._slot_millionths / _MILLIONTHS,
        }
