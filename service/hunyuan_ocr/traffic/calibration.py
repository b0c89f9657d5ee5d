"""Calibration at start: an engine's speed from a few pages, some read alone, some together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hunyuan_ocr.traffic.cost import Sample, Speed

# Proportions only, of an H200's seconds: the engine at hand sets the scale.
PRIOR = Speed(
    page_s=0.02,
    visual_token_s=20e-6,
    vision_tflop_s=0.02,
    output_token_s=0.0024,
    contention=0.05,
)
# How strongly calibration holds on to the proportions it began with: few samples cannot tell
# four coefficients apart.
_RIDGE = 0.05


def calibrated(prior: Speed, samples: Sequence[Sample]) -> Speed:
    """The speed that explains `samples`, some taken alone and some beside others.

    `prior` gives the proportions where samples cannot tell; its scale does not matter. Ridge
    regression on relative errors, then the contention that is left unexplained.
    """
    alone = [s for s in samples if s.load_slots < 0.5] or list(samples)
    ratios = sorted(s.service_s / prior.service_s(s.work, s.load_slots) for s in alone)
    prior = prior.scaled(ratios[len(ratios) // 2])
    speed = _fitted(prior, alone)
    loaded = [s for s in samples if s.load_slots >= 0.5]
    if not loaded:
        return speed
    slowed = sum(s.service_s / speed.alone_s(s.work) - 1 for s in loaded)
    return replace(speed, contention=max(0.0, slowed / sum(s.load_slots for s in loaded)))


def _fitted(prior: Speed, samples: Sequence[Sample]) -> Speed:
    """Coefficients as multiples of the prior's, none below zero."""
    parts = [_parts(prior, s) for s in samples]
    size = len(parts[0])
    ridge = _RIDGE * len(parts)
    normal = [
        [sum(p[i] * p[j] for p in parts) + (ridge if i == j else 0.0) for j in range(size)]
        for i in range(size)
    ]
    multiples = solve(normal, [sum(p[i] for p in parts) + ridge for i in range(size)])
    page, visual, vision, output = (max(0.0, m) for m in multiples)
    return Speed(
        prior.page_s * page,
        prior.visual_token_s * visual,
        prior.vision_tflop_s * vision,
        prior.output_token_s * output,
        prior.contention,
    )


def _parts(prior: Speed, sample: Sample) -> tuple[float, ...]:
    """The prior's terms as parts of what was measured: multiples should make them sum to 1."""
    work = sample.work
    measured_s = sample.service_s / (1 + prior.contention * sample.load_slots)
    terms = (
        prior.page_s,
        prior.visual_token_s * work.visual_tokens,
        prior.vision_tflop_s * work.vision_tflop,
        prior.output_token_s * work.output_tokens,
    )
    return tuple(term / measured_s for term in terms)


def solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solve `matrix` x = `right` for a positive definite matrix (Gaussian elimination)."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i, pivot_row in enumerate(rows):
        pivot = pivot_row[i]
        for row in rows[i + 1 :]:
            factor = row[i] / pivot
            for j in range(i, len(row)):
                row[j] -= factor * pivot_row[j]
    solution = [0.0] * len(rows)
    for i in reversed(range(len(rows))):
        known = sum(rows[i][j] * solution[j] for j in range(i + 1, len(rows)))
        solution[i] = (rows[i][-1] - known) / rows[i][i]
    return solution
