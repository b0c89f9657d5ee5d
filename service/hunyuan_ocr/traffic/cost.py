"""What a page costs the engine, and how the engine does against that.

Two models are kept apart. `Reference` says how long a page should take on this engine in health:
it is calibrated at start and moves so slowly that an engine which stays slow goes on reading as
slow. `WaitScale` follows the last seconds and is used for nothing but predicting waits. With one
model fitted online, a lasting fault would teach the alarm to expect it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Arithmetic of HunyuanOCR's vision transformer for one image of N patches: the layers' matrices
# take 0.82 GFLOP a patch, attention 124 kFLOP for each pair of patches.
_LINEAR_TFLOP = 0.82e-3
_PAIR_TFLOP = 124e-9

# The reference may move by this much in an hour, and this far in all: an engine three times as
# slow still reads as more than twice as slow after any time.
_DRIFT_PER_HOUR = 1.05
_DRIFT_MAX = 1.25
# A sample speaks for the time since the last one, but not for a long silence.
_SAMPLE_MAX_S = 10.0

_SCALE_TIME_CONSTANT_S = 10.0
_SCALE_PRIOR_S = 0.5
_SCALE_MIN, _SCALE_MAX = 0.2, 20.0


@dataclass(frozen=True, slots=True)
class Work:
    """What reading one page asks of the engine.

    `vit_patches` are patches before merging, `output_tokens` expected or, afterwards, counted.
    """

    visual_tokens: int
    vit_patches: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        """Places in the KV cache."""
        return self.visual_tokens + self.output_tokens

    @property
    def vision_tflop(self) -> float:
        return self.vit_patches * (_LINEAR_TFLOP + _PAIR_TFLOP * self.vit_patches)


@dataclass(frozen=True, slots=True)
class Price:
    """`slots` held, `alone_s` seconds of service on an idle engine, `cost` in slot seconds.

    Cost is the currency of queues, shares and quotas.
    """

    slots: float
    alone_s: float
    cost: float

    def times(self, turns: int) -> Price:
        """That of a page with as many turns at the engine, one after the other and all alike."""
        return Price(self.slots, self.alone_s * turns, self.cost * turns)


@dataclass(frozen=True, slots=True)
class Speed:
    """An engine's seconds: for a page, a visual token, a TFLOP of vision, an output token.

    A page beside others that hold n slots takes 1 + `contention` * n times as long.
    """

    page_s: float
    visual_token_s: float
    vision_tflop_s: float
    output_token_s: float
    contention: float

    def alone_s(self, work: Work) -> float:
        return (
            self.page_s
            + self.visual_token_s * work.visual_tokens
            + self.vision_tflop_s * work.vision_tflop
            + self.output_token_s * work.output_tokens
        )

    def service_s(self, work: Work, load_slots: float) -> float:
        """Seconds of `work` beside others that hold `load_slots`."""
        return self.alone_s(work) * (1 + self.contention * load_slots)

    def scaled(self, factor: float) -> Speed:
        """An engine that takes `factor` times as long."""
        return Speed(
            self.page_s * factor,
            self.visual_token_s * factor,
            self.vision_tflop_s * factor,
            self.output_token_s * factor,
            self.contention,
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """One page as it was served; `load_slots` is the mean that others held meanwhile."""

    work: Work
    load_slots: float
    service_s: float


class Reference:
    """How long a page should take on this engine in health."""

    def __init__(self, speed: Speed) -> None:
        self.speed = speed
        self._log_drift = 0.0
        self._last_s: float | None = None

    @property
    def drift(self) -> float:
        return math.exp(self._log_drift)

    def service_s(self, work: Work, load_slots: float) -> float:
        return self.speed.service_s(work, load_slots) * self.drift

    def ratio(self, sample: Sample) -> float:
        """Measured / reference: 1 is health, 3 is three times as slow."""
        return sample.service_s / self.expected_s(sample)

    def expected_s(self, sample: Sample) -> float:
        return self.service_s(sample.work, sample.load_slots)

    def observe(self, now: float, sample: Sample) -> None:
        """Move towards the median of what is measured, by time and not by number of samples.

        Never give it samples of an engine that is derated, throttled, degraded or on probation.
        """
        last_s, self._last_s = self._last_s, now
        if last_s is None:
            return
        elapsed_s = min(max(0.0, now - last_s), _SAMPLE_MAX_S)
        step = math.log(_DRIFT_PER_HOUR) * elapsed_s / 3600
        moved = self._log_drift + (step if self.ratio(sample) > 1 else -step)
        bound = math.log(_DRIFT_MAX)
        self._log_drift = min(max(moved, -bound), bound)


class WaitScale:
    """`factor` is measured / predicted service over the last seconds."""

    def __init__(self) -> None:
        self.factor = 1.0
        self._measured_s = self._predicted_s = _SCALE_PRIOR_S
        self._last_s: float | None = None

    def observe(self, now: float, predicted_s: float, measured_s: float) -> None:
        """One long sample speaks of the last seconds too, and no louder than others of them."""
        part = min(1.0, _SAMPLE_MAX_S / measured_s) if measured_s > 0 else 1.0
        predicted_s, measured_s = part * predicted_s, part * measured_s
        elapsed_s = 0.0 if self._last_s is None else max(0.0, now - self._last_s)
        self._last_s = now
        keep = math.exp(-elapsed_s / _SCALE_TIME_CONSTANT_S)
        prior_s = _SCALE_PRIOR_S * (1 - keep)
        self._measured_s = self._measured_s * keep + prior_s + measured_s
        self._predicted_s = self._predicted_s * keep + prior_s + predicted_s
        ratio = self._measured_s / self._predicted_s
        self.factor = min(max(ratio, _SCALE_MIN), _SCALE_MAX)


class CostModel:
    """Prices pages and predicts service; `slot_tokens` places of the KV cache make one slot."""

    def __init__(self, speed: Speed, slot_tokens: int, slots_max: float = math.inf) -> None:
        """No page holds more than `slots_max`, which is all that the engine has."""
        self.reference = Reference(speed)
        self.scale = WaitScale()
        self._slot_tokens = slot_tokens
        self._slots_max = slots_max

    def recalibrate(self, speed: Speed) -> None:
        """Begin anew: this is another engine process. Prices given out stay as they are."""
        self.reference = Reference(speed)
        self.scale = WaitScale()

    def price(self, work: Work) -> Price:
        slots = min(max(1.0, work.tokens / self._slot_tokens), self._slots_max)
        alone_s = self.reference.service_s(work, 0.0)
        return Price(slots, alone_s, slots * alone_s)

    def dilation(self, load_slots: float) -> float:
        """Seconds that the engine takes now, beside others that hold `load_slots`, for what took
        one second alone and in health."""
        return self._stretch(load_slots) * self.scale.factor

    def drain_rate(self, limit_slots: float) -> float:
        """Cost served in a second while `limit_slots` are held (Little's law)."""
        return limit_slots / self.dilation(limit_slots - 1)

    def observe(self, now: float, sample: Sample, *, trusted: bool) -> float:
        """Learn from one turn of a page; returns the seconds the reference gives for it.

        For its counted work, not what it was priced at: a long answer is no slow engine.
        `trusted` is False for samples taken while derated, throttled, degraded or on probation.
        """
        reference_s = self.reference.expected_s(sample)
        self.scale.observe(now, reference_s, sample.service_s)
        if trusted:
            self.reference.observe(now, sample)
        return reference_s

    def _stretch(self, load_slots: float) -> float:
        return 1 + self.reference.speed.contention * max(0.0, load_slots)
