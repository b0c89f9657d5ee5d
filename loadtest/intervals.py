"""Quantiles, shares and rates, each with what its 95 % interval is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

# Two-sided 95 % of Student's t with BATCHES - 1 degrees of freedom.
BATCHES = 10
_T = 2.262
_Z = NormalDist().inv_cdf(0.975)

Interval = tuple[float, float]


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all do not exceed. `ordered` ascends and is not empty."""
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


def quantile_interval(ordered: Sequence[float], share: float) -> Interval:
    """Between which values the true quantile lies, whatever the distribution: by the ranks that a
    binomial count reaches. `ordered` ascends and is not empty.
    """
    count = len(ordered)
    middle, spread = share * count, _Z * math.sqrt(count * share * (1 - share))
    low = max(0, math.floor(middle - spread) - 1)
    high = min(count - 1, math.ceil(middle + spread))
    return ordered[low], ordered[high]


def share_interval(hits: int, count: int) -> Interval:
    """Wilson's interval of a share; all of [0, 1] for nothing seen."""
    if not count:
        return 0.0, 1.0
    share, z2 = hits / count, _Z**2
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    spread = _Z / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    # At the ends rounding would leave the share itself outside.
    low = 0.0 if not hits else max(0.0, centre - spread)
    return low, 1.0 if hits == count else min(1.0, centre + spread)


def rate_interval(at_s: Sequence[float], begin_s: float, end_s: float) -> Interval:
    """Of events a second, from how their counts differ between equal parts of the time: answers
    of one batch come together, so that they are no Poisson process.
    """
    part_s = (end_s - begin_s) / BATCHES
    counts = [0] * BATCHES
    for at in at_s:
        if begin_s <= at < end_s:
            counts[min(BATCHES - 1, int((at - begin_s) / part_s))] += 1
    mean, spread = fmean(counts), _T * stdev(counts) / math.sqrt(BATCHES)
    return max(0.0, mean - spread) / part_s, (mean + spread) / part_s
