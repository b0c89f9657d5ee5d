"""The wiring of admission control: from settings to the part that admits, and what shows it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from hunyuan_ocr.concurrency import repeat
from hunyuan_ocr.engine_turns import PASSED_THROUGH
from hunyuan_ocr.settings import Settings
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.telemetry.metrics import AdmissionMetrics
from hunyuan_ocr.traffic.adaptive import AdaptiveLimit, LimitOptions
from hunyuan_ocr.traffic.admission import Admission
from hunyuan_ocr.traffic.admission_control import AdmissionControl
from hunyuan_ocr.traffic.calibration import PRIOR
from hunyuan_ocr.traffic.classes import (
    DEFAULT_POLICIES,
    ClassPolicies,
    ClassPolicy,
    Priority,
)
from hunyuan_ocr.traffic.cost import CostModel
from hunyuan_ocr.traffic.degradation import Ladder, LadderOptions, Step
from hunyuan_ocr.traffic.feedback import Feedback
from hunyuan_ocr.traffic.gate import Gate
from hunyuan_ocr.traffic.offered_load import OfferedLoad
from hunyuan_ocr.traffic.outputs import OutputTokens
from hunyuan_ocr.traffic.ratelimit import UNLIMITED, Quota, Quotas, RateLimiter
from hunyuan_ocr.traffic.redis_quotas import RedisQuotas

_PRESSURE_PERIOD_S = 1.0
# Answers as they are expected before any were seen: published medians, and their long tails.
_OUTPUT_TOKENS = 128
_LONG_OUTPUT_TOKENS: dict[str, int] = {Task.TABLE: 512, Task.LAYOUT: 512, Task.SPOTTING: 768}
# An engine that takes a second for a page could hardly let any wait otherwise.
_EMBEDDED_QUEUES_S = {
    Priority.INTERACTIVE: 10.0,
    Priority.STANDARD: 40.0,
    Priority.BATCH: 400.0,
}
# A page of the embedded engine takes one worker, whatever its size.
_ANY_TOKENS = 1 << 30
_TOP_STEPS = {
    "none": Step.NORMAL,
    "shrink_batch": Step.SHRINK_BATCH,
    "lower_pixels": Step.LOWER_PIXELS,
    "cpu_engine": Step.LOWER_PIXELS,  # and then, instead of a refusal, what `fallback.py` does
}


def class_policies(settings: Settings) -> ClassPolicies:
    def policy(priority: Priority) -> ClassPolicy:
        standard = DEFAULT_POLICIES[priority]
        queue_s = _EMBEDDED_QUEUES_S[priority]
        if settings.engine == "vllm":
            queue_s = standard.max_queue_s
        return replace(
            standard,
            max_queue_s=getattr(settings, f"{priority}_max_queue_s") or queue_s,
            timeout_s=getattr(settings, f"{priority}_timeout_s"),
        )

    return {priority: policy(priority) for priority in Priority}


def quotas(settings: Settings) -> Quotas:
    requests_per_s, cost_per_s = settings.quota_requests_per_s, settings.quota_cost_per_s
    return Quotas(
        requests=Quota(requests_per_s, settings.quota_requests_burst)
        if requests_per_s
        else UNLIMITED,
        cost=Quota(cost_per_s, settings.quota_cost_burst) if cost_per_s else UNLIMITED,
    )


def quota_store(settings: Settings) -> Redis | None:
    """The connection that replicas share quotas over; opens nothing yet."""
    limited = settings.quota_requests_per_s or settings.quota_cost_per_s
    if settings.redis_url is None or not limited:
        return None
    # An answer that does not come at once is not waited for: local quotas decide meanwhile.
    return Redis.from_url(settings.redis_url, retry=Retry(NoBackoff(), 0))


def build_rate_limiter(settings: Settings, redis: Redis | None) -> RateLimiter:
    limits = quotas(settings)
    shared = RedisQuotas(redis, limits) if redis else None
    return RateLimiter(limits, shared, clock=time.monotonic, rng=random.Random())  # noqa: S311


def build_admission_control(
    settings: Settings,
    limiter: RateLimiter,
    hear: Callable[[str, float], None],
    engine_ready: Callable[[], bool] = lambda: True,
) -> AdmissionControl:
    """`hear` gets outcomes of work that was asked for, and its seconds of the whole engine.

    While not `engine_ready` nothing is sent to it, and who waits keeps its place.
    """
    clock, rng = time.monotonic, random.Random()  # noqa: S311
    concurrency, floor, slot_tokens = _engine_size(settings)
    model = CostModel(PRIOR, slot_tokens, concurrency)
    policies = class_policies(settings)
    admission = Admission(
        model,
        policies,
        limit_slots=concurrency,
        reserved_slots=settings.interactive_reserved_slots,
        pages_ahead=settings.decode_workers,
        rng=rng,
    )
    offered = OfferedLoad(admission, clock, hear)
    limit = AdaptiveLimit(LimitOptions(floor=floor, ceiling=concurrency), clock())
    return AdmissionControl(
        policies=policies,
        model=model,
        admission=admission,
        gate=Gate(admission, clock, offered.refused, engine_ready),
        limiter=limiter,
        feedback=Feedback(admission, model, limit, _outputs(settings)),
        ladder=Ladder(LadderOptions(top=_TOP_STEPS[settings.degrade_top])),
        offered=offered,
        clock=clock,
    )


def _engine_size(settings: Settings) -> tuple[int, int, int]:
    """Slots, how few they may become, and the tokens of one."""
    if settings.engine == "embedded":
        return settings.embedded_workers, settings.embedded_workers, _ANY_TOKENS
    concurrency = settings.vllm_concurrency
    floor = min(settings.vllm_concurrency_floor, concurrency)
    return concurrency, floor, settings.vllm_slot_tokens


def _outputs(settings: Settings) -> dict[str, OutputTokens]:
    """How long answers will be, by task; the embedded engine counts no tokens."""
    names = (*Task, PASSED_THROUGH)
    if settings.engine == "embedded":
        return {name: OutputTokens(0) for name in names}
    return {name: OutputTokens(_LONG_OUTPUT_TOKENS.get(name, _OUTPUT_TOKENS)) for name in names}


def show_admission(control: AdmissionControl, metrics: AdmissionMetrics) -> None:
    """Gauges that are read when they are scraped."""
    admission = control.admission
    for priority in Priority:
        metrics.pages_waiting.labels(priority).set_function(partial(admission.waiting, priority))
        metrics.queue_fullness.labels(priority).set_function(partial(admission.fullness, priority))
    metrics.pages_in_flight.set_function(lambda: admission.running)
    metrics.slots_held.set_function(lambda: admission.held_slots)
    metrics.slots_limit.set_function(lambda: admission.limit_slots)
    metrics.offered_load.set_function(lambda: control.offered.value)
    metrics.quota_store_down.set_function(lambda: control.limiter.alone())


async def watch_pressure(control: AdmissionControl, show: Callable[[int], None]) -> None:
    """For ever: let the ladder of degradation look at the queues, and the limiter at its store.

    `show` gets the ladder's step.
    """

    async def look() -> None:
        show(control.step())
        await control.limiter.probe()

    await repeat(_PRESSURE_PERIOD_S, look)
