"""A caller's quotas, in headers and in /v1/options.

The headers are those of draft-ietf-httpapi-ratelimit-headers: a policy's quota `q` is refilled
evenly over its window `w`; `r` is what is left of it, `t` the seconds until all of it is there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from hunyuan_ocr.traffic.ratelimit import UNLIMITED, Quota, Quotas, RateLimiter


class QuotaDisplay:
    """Shows a tenant those of its quotas that are set."""

    def __init__(self, quotas: Quotas, limiter: RateLimiter) -> None:
        self._quotas = quotas
        self._limiter = limiter

    def headers(self, tenant: str) -> dict[str, str]:
        """`RateLimit-Policy` and `RateLimit`; empty where no quota is set."""
        shown = list(self._of(tenant))
        if not shown:
            return {}
        policies, states = [], []
        for name, unit, quota, debt_s in shown:
            window_s = math.ceil(quota.burst / quota.per_s)
            policies.append(f'"{name}";q={math.floor(quota.burst)};w={window_s}{unit}')
            left = max(0, math.floor(quota.left(debt_s)))
            states.append(f'"{name}";r={left};t={math.ceil(debt_s)}')
        return {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(states)}

    def options(self, tenant: str) -> dict[str, Any]:
        """By name: refill a second, burst, what is left; cost in slot seconds."""
        return {
            name: {
                "per_s": quota.per_s,
                "burst": quota.burst,
                "left": round(quota.left(debt_s), 3),
            }
            for name, _, quota, debt_s in self._of(tenant)
        }

    def _of(self, tenant: str) -> Iterator[tuple[str, str, Quota, float]]:
        debt = self._limiter.debt(tenant)
        if self._quotas.requests is not UNLIMITED:
            yield "requests", "", self._quotas.requests, debt.requests_s
        if self._quotas.cost is not UNLIMITED:
            yield "cost", ';qu="slot-seconds"', self._quotas.cost, debt.cost_s
