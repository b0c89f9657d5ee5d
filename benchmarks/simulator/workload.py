"""Who asks for what, and when."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from hunyuan_ocr.engines.visual_tokens import PixelBounds
from hunyuan_ocr.traffic.classes import Priority
from hunyuan_ocr.traffic.cost import Work

_BOUNDS = PixelBounds(512 * 512, 2048 * 2048)


@dataclass(frozen=True, slots=True)
class PageKind:
    """Pages of one size; lengths of answers are lognormal around `output_median`."""

    name: str
    width: int
    height: int
    output_median: int
    weight: float

    @property
    def megapixels(self) -> float:
        return self.width * self.height / 1e6

    def work(self, output_tokens: int) -> Work:
        tokens = _BOUNDS.tokens(self.width, self.height)
        return Work(tokens, _BOUNDS.patches(self.width, self.height), output_tokens)


_OUTPUT_SIGMA = 0.5
KINDS = (
    PageKind("crop", 512, 512, 35, 0.3),
    PageKind("form", 1024, 768, 120, 0.5),
    PageKind("dense", 992, 1056, 260, 0.2),
)


@dataclass(eq=False, slots=True)
class Request:
    """One page asked for by one client; retries are requests of their own."""

    kind: PageKind
    work: Work
    priority: Priority
    tenant: str
    sent: float
    deadline: float
    attempt: int = 1
    ended: float | None = None
    outcome: str = ""


Rate = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Source:
    """Poisson arrivals at `rate(t)` a second, never above `peak`, of one class.

    `tenants` get equal parts.
    """

    priority: Priority
    timeout_s: float
    rate: Rate
    peak: float
    tenants: Sequence[str] = ("one",)
    kinds: Sequence[PageKind] = KINDS

    def requests(self, rng: Random, until: float) -> Iterator[Request]:
        weights = [kind.weight for kind in self.kinds]
        now = 0.0
        while (now := now + rng.expovariate(self.peak)) < until:
            if rng.random() * self.peak >= self.rate(now):
                continue
            kind = rng.choices(self.kinds, weights)[0]
            output = max(1, round(kind.output_median * rng.lognormvariate(0, _OUTPUT_SIGMA)))
            yield Request(
                kind,
                kind.work(output),
                self.priority,
                rng.choice(self.tenants),
                now,
                now + self.timeout_s,
            )


def steady(rate: float) -> Rate:
    return lambda _: rate


def burst(base: float, high: float, begin: float, end: float) -> Rate:
    return lambda t: high if begin <= t < end else base


def diurnal(mean: float, swing: float, period_s: float) -> Rate:
    """A day's course: `mean` plus and minus `swing` times it."""
    return lambda t: mean * (1 - swing * math.cos(2 * math.pi * t / period_s))
