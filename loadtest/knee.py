"""Where a curve of throughput over load stops growing, and whether it does.

Two straight lines with a rounded corner, fitted to the logarithms of both: before the knee
throughput grows with some power of the load (1: each further request in flight adds as much as the
first), behind it hardly at all. The knee is where the lines meet. A curve with one power throughout
has no knee, however bent it looks on a linear scale, and neither has one that was flat from the
first level or still grows at the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MIN_LEVELS = 5
# On each side of the knee: one level alone is no line.
MIN_SIDE = 2
MIN_GROWTH = 0.4
MAX_TAIL_SHARE = 0.25
MIN_FIT_GAIN = 0.5
# Squares, in variances of what was measured, that a corner must explain: noise seldom does.
MIN_EXPLAINED = 9.0
MIN_OF_PEAK = 0.6
# What lies behind a collapse says nothing of where the curve bent.
COLLAPSED = 0.5
# No two levels agree better than this, however many answers they had.
MODEL_ERROR = 0.02
# Of the corner: the least is one that takes from half to twice the knee's load.
SHARPNESSES = (3.5, 5.0, 8.0, 50.0)
_BENDS = 150
_DRAWS = 100

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Point:
    """What a level of load brought: answers a second, and how many answers that rests on.

    `scatter`: coefficient of variation of the time between two answers of one caller; 1 where
    they come at random.
    """

    load: float
    per_s: float
    answers: int
    scatter: float = 1.0


@dataclass(frozen=True, slots=True)
class Knee:
    """`load` in the unit of the points, with its 95 % interval; `per_s`: the lines' height there,
    which a round corner stays below; `growth` and `tail`: the powers at the first and last level.
    """

    load: float
    low: float
    high: float
    per_s: float
    growth: float
    tail: float


@dataclass(frozen=True, slots=True)
class NoKnee:
    """`why` is a sentence for people."""

    why: str


def find_knee(points: Sequence[Point]) -> Knee | NoKnee:
    """Fit the lines and judge them. Points may come in any order, a load several times."""
    used = _usable(points)
    loads = sorted({point.load for point in used})
    if len(loads) < MIN_LEVELS:
        return NoKnee(f"{len(loads)} levels with answers, and {MIN_LEVELS} are needed")
    curve = _Curve.of(used)
    corners = _corners(np.log(loads[MIN_SIDE - 1]), np.log(loads[-MIN_SIDE]))
    bases = _bases(curve, corners)
    best = corners[int(np.argmin(_squares(bases, curve.weighted[None, :])[0]))]
    fit = _fit(curve, float(best[0]), float(best[1]))
    if why := _objection(curve, fit, max(point.per_s for point in used)):
        return NoKnee(why)
    low, high = np.exp(_interval(curve, corners, bases))
    knee = float(np.exp(fit.bend))
    growth, tail = fit.power(curve.x[0]), fit.power(curve.x[-1])
    return Knee(knee, min(low, knee), max(high, knee), float(np.exp(fit.height)), growth, tail)


def _usable(points: Sequence[Point]) -> list[Point]:
    answered = sorted((p for p in points if p.per_s > 0 and p.answers), key=lambda p: p.load)
    peak = max(answered, key=lambda p: p.per_s, default=None)
    return [
        p
        for p in answered
        if peak is None or p.load <= peak.load or p.per_s >= COLLAPSED * peak.per_s
    ]


@dataclass(frozen=True, slots=True)
class _Curve:
    """Logarithms of load and throughput, ascending in x; `weight`: 1 / standard error of y."""

    x: Array
    y: Array
    weight: Array

    @classmethod
    def of(cls, points: Sequence[Point]) -> _Curve:
        variance = np.array([p.scatter**2 / p.answers + MODEL_ERROR**2 for p in points])
        return cls(
            np.log([point.load for point in points]),
            np.log([point.per_s for point in points]),
            1 / np.sqrt(variance),
        )

    @property
    def weighted(self) -> Array:
        return self.y * self.weight


@dataclass(frozen=True, slots=True)
class _Fit:
    """y = height + before * z + change * corner(z), where z = x - bend."""

    bend: float
    sharpness: float
    height: float
    before: float
    change: float
    squares: float

    def power(self, x: float) -> float:
        """With which power throughput grows there."""
        turned = 1 / (1 + np.exp(-self.sharpness * (x - self.bend)))
        return float(self.before + self.change * turned)


def _corners(first: float, last: float) -> Array:
    """Every bend with every sharpness, (corners, 2)."""
    bends = np.linspace(first, last, _BENDS)
    return np.array([(bend, sharpness) for sharpness in SHARPNESSES for bend in bends])


def _columns(x: Array, bend: float | Array, sharpness: float | Array) -> Array:
    """Height, line and corner as the last axis; bends and sharpnesses may be columns."""
    z = x - bend
    return np.stack([np.ones_like(z), z, np.logaddexp(0, sharpness * z) / sharpness], axis=-1)


def _bases(curve: _Curve, corners: Array) -> Array:
    """For each corner an orthonormal basis of the curves it allows, (corners, points, 3)."""
    columns = _columns(curve.x, corners[:, :1], corners[:, 1:])
    return np.asarray(np.linalg.qr(columns * curve.weight[None, :, None])[0], np.float64)


def _squares(bases: Array, curves: Array) -> Array:
    """Squares that the best lines leave, (curves, corners); `curves` is (curves, points)."""
    explained = np.einsum("bpk,cp->cbk", bases, curves, optimize=True)
    return np.asarray(
        (curves**2).sum(1)[:, None] - np.einsum("cbk,cbk->cb", explained, explained), np.float64
    )


def _fit(curve: _Curve, bend: float, sharpness: float) -> _Fit:
    columns = _columns(curve.x, bend, sharpness)
    (height, before, change), squares = _least_squares(curve, columns)
    return _Fit(bend, sharpness, height, before, change, squares)


def _least_squares(curve: _Curve, columns: Array) -> tuple[list[float], float]:
    """The coefficients, and the squares they leave."""
    solved = np.linalg.lstsq(columns * curve.weight[:, None], curve.weighted)[0]
    left = (columns @ solved - curve.y) * curve.weight
    return [float(value) for value in solved], float((left**2).sum())


def _objection(curve: _Curve, fit: _Fit, peak: float) -> str:
    """Why the fit is no knee; empty where it is one."""
    (_, power), straight = _least_squares(curve, np.stack([np.ones_like(curve.x), curve.x], 1))
    growth, tail = fit.power(curve.x[0]), fit.power(curve.x[-1])
    if max(growth, power) < MIN_GROWTH:
        return "throughput hardly grew from the first level on: it was full there already"
    if growth < MIN_GROWTH or tail > MAX_TAIL_SHARE * growth:
        return f"throughput still grew at the last level, with the load to the power {tail:.2f}"
    if straight - fit.squares < max(MIN_FIT_GAIN * straight, MIN_EXPLAINED):
        return "one line fits as well as two"
    if np.exp(fit.height) < MIN_OF_PEAK * peak:
        return "throughput rose again behind the bend"
    return ""


def _interval(curve: _Curve, corners: Array, bases: Array) -> tuple[float, float]:
    """Between which logarithms the bend would lie had the same levels been measured again."""
    noise = np.random.default_rng(0).standard_normal((_DRAWS, len(curve.x)))
    chosen = corners[np.argmin(_squares(bases, curve.weighted + noise), axis=1), 0]
    low, high = np.quantile(chosen, [0.025, 0.975])
    return float(low), float(high)
