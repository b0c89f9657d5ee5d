"""Sums of costs and slots, in which rounding must decide nothing."""

from __future__ import annotations

_ROUNDING = 1e-9


def less(total: float, part: float) -> float:
    """`total` - `part`, without the crumbs."""
    rest = total - part
    return rest if rest > _ROUNDING else 0.0


def fits(total: float, limit: float) -> bool:
    return total <= limit + _ROUNDING
