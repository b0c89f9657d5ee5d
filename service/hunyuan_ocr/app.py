"""The wiring: which parts a service is made of, built from settings by constructor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from opentelemetry.trace import TracerProvider
from redis.asyncio import Redis
from starlette.types import ASGIApp

from hunyuan_ocr.api.control import control_app
from hunyuan_ocr.api.ops import management_app
from hunyuan_ocr.api_wiring import build_callers, build_routes, surrounded
from hunyuan_ocr.cluster.signals import ClusterSignals
from hunyuan_ocr.documents.prepare import Preparer
from hunyuan_ocr.errors import (
    BreakerOpen,
    DeadlineUnreachable,
    Draining,
    EngineStarting,
    EngineUnavailable,
    QueueFull,
    Unavailable,
)
from hunyuan_ocr.fallback import Documents, WithFallback
from hunyuan_ocr.guard_wiring import Herald, build_signals, watch_engine
from hunyuan_ocr.settings import Settings
from hunyuan_ocr.telemetry.logs import report_loop_error
from hunyuan_ocr.telemetry.metrics import Metrics, ProcessMetrics
from hunyuan_ocr.telemetry.tracing import shut_down, tracer_provider
from hunyuan_ocr.telemetry.usage_records import UsageRecords
from hunyuan_ocr.traffic.drain import Drain, Drainer
from hunyuan_ocr.traffic_wiring import (
    build_rate_limiter,
    quota_store,
    show_admission,
    watch_pressure,
)
from hunyuan_ocr.way_wiring import Shared, Way, build_preparer, build_way

VERSION = version("hunyuan-ocr")
_MEGA = 1_000_000
_LAG_PERIOD_S = 0.1


@dataclass(frozen=True, slots=True)
class Service:
    """A built service. Its three applications answer while inside `running`."""

    settings: Settings
    api: ASGIApp
    management: ASGIApp
    control: ASGIApp
    openapi: Callable[[], dict[str, Any]]
    usual: Way
    stand_in: Way | None
    preparer: Preparer
    redis: Redis | None
    signals: ClusterSignals | None
    herald: Herald
    metrics: Metrics
    traces: TracerProvider
    usage_records: UsageRecords
    drainer: Drainer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the parts; on leaving stop them and give everything back."""
        asyncio.get_running_loop().set_exception_handler(report_loop_error)
        async with AsyncExitStack() as stack:
            stack.callback(shut_down, self.traces)
            stack.callback(self.usage_records.close)
            self.usage_records.start()
            stack.push_async_callback(self.preparer.close)
            self.preparer.start()
            for way in filter(None, (self.usual, self.stand_in)):
                stack.push_async_callback(way.engine.close)
                await way.engine.start()
            if self.redis is not None:
                stack.push_async_callback(self.redis.aclose)
            if self.signals is not None:
                stack.push_async_callback(self.signals.close)
                self.signals.start()
            usual, metrics = self.usual, self.metrics
            watches = [
                _observe_lag(metrics.process),
                watch_pressure(usual.admission, metrics.admission.degradation_step.set),
                watch_engine(usual.guard, usual.engine, self.settings, metrics, self.herald),
            ]
            if self.stand_in is not None:
                watches.append(watch_pressure(self.stand_in.admission, lambda _: None))
            for watch in watches:
                stack.push_async_callback(_stop, asyncio.create_task(watch))
            yield


def build(settings: Settings) -> Service:
    """Build a service; starts nothing. A second one in the same process is its own."""
    metrics = Metrics(VERSION, settings.slo_interactive_s)
    usage_records = UsageRecords(settings.usage_records, metrics.requests.usage_lost)
    traces = tracer_provider(VERSION, settings.otlp_endpoint)
    redis = quota_store(settings)
    preparer = build_preparer(settings)
    drain = Drain(time.monotonic)
    signals = build_signals(settings)
    herald = Herald(metrics, signals)
    shared = Shared(
        build_rate_limiter(settings, redis),
        preparer,
        metrics,
        traces.get_tracer("hunyuan_ocr"),
        herald,
        drain,
    )
    usual = build_way(settings, shared)
    show_admission(usual.admission, metrics.admission)
    drainer = Drainer(drain, settings.markers_directory, signals.leave if signals else lambda: None)
    taken_over, stand_in = _taken_over(settings), None
    documents: Documents = usual.pipeline
    if taken_over:
        stand_in = build_way(settings.model_copy(update={"engine": "embedded"}), shared, usual)
        documents = WithFallback(usual.pipeline, stand_in.pipeline, taken_over)
    callers = build_callers(settings, usual.admission)
    routes = build_routes(VERSION, settings, documents, usual, callers)

    def unready() -> Unavailable | None:
        if drain.begun:
            return Draining("the service is draining")
        refusal = usual.engine.refusal()
        serves = stand_in and isinstance(refusal, taken_over) and not stand_in.engine.refusal()
        return None if serves else refusal

    metrics.process.ready.set_function(lambda: unready() is None)
    metrics.process.draining.set_function(lambda: drain.begun)
    metrics.guard.engine_dead_seconds.set_function(lambda: usual.engine.health().dead_for_s)
    return Service(
        settings=settings,
        api=surrounded(
            routes, settings, metrics, traces, drain, documents, usual, callers, usage_records
        ),
        management=management_app(
            metrics, usual.engine, refusal=unready, hung_limit_s=settings.engine_hung_limit_s
        ),
        control=control_app(
            drainer,
            settings.drain_propagation_s,
            lambda: usual.admission.admission.begun,
            usual.guard,
        ),
        openapi=routes.openapi,
        usual=usual,
        stand_in=stand_in,
        preparer=preparer,
        redis=redis,
        signals=signals,
        herald=herald,
        metrics=metrics,
        traces=traces,
        usage_records=usage_records,
        drainer=drainer,
    )


def _taken_over(settings: Settings) -> tuple[type[Unavailable], ...]:
    """What the CPU engine reads instead of refusing it: nothing where it is the engine anyway."""
    if settings.engine == "embedded":
        return ()
    outage = (BreakerOpen, EngineUnavailable, EngineStarting)
    overload = (QueueFull, DeadlineUnreachable)
    return (outage if settings.breaker_policy == "cpu" else ()) + (
        overload if settings.degrade_top == "cpu_engine" else ()
    )


async def _observe_lag(metrics: ProcessMetrics) -> None:
    loop = asyncio.get_running_loop()
    metrics.loop_tasks.set_function(lambda: len(asyncio.all_tasks(loop)))
    while True:
        due = loop.time() + _LAG_PERIOD_S
        await asyncio.sleep(_LAG_PERIOD_S)
        metrics.loop_lag_seconds.observe(max(0.0, loop.time() - due))


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
