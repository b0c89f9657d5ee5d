"""Quotas in Redis, which replicas share; the arithmetic of `ratelimit` as one atomic script."""

from __future__ import annotations

import asyncio
import logging

from redis.asyncio import Redis
from redis.exceptions import RedisError

from hunyuan_ocr.traffic.ratelimit import Debt, Quota, Quotas, SharedUnavailable, Verdict

_log = logging.getLogger(__name__)

_PREFIX = "hunyuan-ocr:quota:"
_REASON_CHARS = 200

# KEYS[1]: a hash of both debts in seconds, and of the time (Redis's own clock, microseconds) at
# which they were so. Where that lies in the future, another Redis with a clock behind has taken
# over: its time begins anew, while a time at which debts are paid would be moved away by as much.
# ARGV: per limit the units asked for, units a second, burst, and the debt it has at least.
_TAKE = """
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local stored = redis.call('HMGET', KEYS[1], 'requests_s', 'cost_s', 'at')
local elapsed = math.max(0, now - (tonumber(stored[3]) or now)) / 1000000
local wait, debts, after = -math.huge, {}, {}
for i = 1, 2 do
  local units, rate, burst, least = unpack(ARGV, 4 * i - 3, 4 * i)
  local debt = math.max(0, (tonumber(stored[i]) or 0) - elapsed)
  debts[i] = math.max(debt, tonumber(least))
  after[i] = debts[i] + units / rate
  wait = math.max(wait, debts[i] - (burst - math.min(units, burst)) / rate)
end
if wait <= 0 then debts = after end
local answer = {}
for i, value in ipairs({wait, debts[1], debts[2]}) do
  answer[i] = string.format('%.17g', value)
end
redis.call('HSET', KEYS[1], 'requests_s', answer[2], 'cost_s', answer[3], 'at',
  string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(math.max(debts[1], debts[2]) * 1000) + 1)
return answer
"""


class RedisQuotas:
    """One key a tenant, gone when it owes nothing. Every call is one round trip."""

    def __init__(self, redis: Redis, quotas: Quotas, *, timeout_s: float = 0.1) -> None:
        self._take = redis.register_script(_TAKE)
        self._quotas = quotas
        self._timeout_s = timeout_s
        self._answers = True

    async def take(self, tenant: str, cost: float, least: Debt) -> Verdict:
        """As `ratelimit.SharedQuotas`."""
        arguments = (
            *_limit(self._quotas.requests, 1, least.requests_s),
            *_limit(self._quotas.cost, cost, least.cost_s),
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._take(keys=[_PREFIX + tenant], args=arguments)
        except (RedisError, OSError, TimeoutError) as error:
            self._note(error)
            raise SharedUnavailable from error
        self._note(None)
        wait_s, requests_s, cost_s = map(float, answer)
        return Verdict(wait_s, Debt(requests_s, cost_s))

    def _note(self, error: Exception | None) -> None:
        """A log line when it stops to answer as it should, and when it answers again."""
        answers = error is None
        if answers != self._answers:
            why = f"{type(error).__name__}: {error}"[:_REASON_CHARS] if error else ""
            _log.warning("quota store", extra={"fields": {"answers": answers, "why": why}})
        self._answers = answers


def _limit(quota: Quota, units: float, least_s: float) -> tuple[float, float, float, float]:
    return units, quota.per_s, quota.burst, least_s
