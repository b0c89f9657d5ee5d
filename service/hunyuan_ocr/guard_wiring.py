"""The wiring of the engine's guard: breaker, thermal policy, sensors, and who hears of changes."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from types import MappingProxyType

from hunyuan_ocr import sandbox
from hunyuan_ocr.cluster.api import ClusterApi, Pod
from hunyuan_ocr.cluster.signals import Change, ClusterSignals
from hunyuan_ocr.concurrency import repeat
from hunyuan_ocr.engines.base import Engine, EngineHealth
from hunyuan_ocr.gpu import reading as gpu
from hunyuan_ocr.settings import Settings
from hunyuan_ocr.telemetry.gpu_metrics import GpuMetrics
from hunyuan_ocr.telemetry.metrics import Metrics
from hunyuan_ocr.traffic.admission_control import AdmissionControl
from hunyuan_ocr.traffic.breaker_states import BreakerOptions, OpenPolicy, Reason, State, Transition
from hunyuan_ocr.traffic.engine_guard import EngineGuard, Trouble
from hunyuan_ocr.traffic.latency_trip import LatencyOptions, LatencyTrip
from hunyuan_ocr.traffic.thermal import Assessment, ThermalPolicy, ThermalProfile

_log = logging.getLogger(__name__)

_WATCH_PERIOD_S = 1.0
# One poll that went wrong is no death.
_DEAD_AFTER_S = 3.0
_NEVER = 2.0  # a share that is never reached
# A hot card must rest, a leaking engine must not be asked: both refuse whatever the policy.
_CHANGES: MappingProxyType[State, Change] = MappingProxyType(
    {State.OPEN: "opened", State.HALF_OPEN: "half_open", State.CLOSED: "closed"}
)
_DEGRADED_FOR = (Reason.LATENCY, Reason.ERROR)


def build_guard(
    settings: Settings,
    control: AdmissionControl,
    on_transition: Callable[[Transition], None],
) -> EngineGuard:
    return EngineGuard(
        _breaker_options(settings),
        LatencyTrip(LatencyOptions(slow_ratio=settings.breaker_slow_ratio)),
        ThermalPolicy(_thermal_profile(settings)),
        control,
        clock=time.monotonic,
        rng=random.Random(),  # noqa: S311
        on_transition=on_transition,
    )


def _thermal_profile(settings: Settings) -> ThermalProfile:
    return ThermalProfile(full_clock_mhz=settings.gpu_full_clock_megahertz)


def _breaker_options(settings: Settings) -> BreakerOptions:
    if settings.engine == "embedded":  # its workers are ours to replace, and nobody rests by it
        return BreakerOptions(failure_share=_NEVER, slow_share=_NEVER)
    if settings.breaker_policy == "degrade":
        return BreakerOptions(policies=dict.fromkeys(_DEGRADED_FOR, OpenPolicy.DEGRADE))
    return BreakerOptions()


class Herald:
    """Tells what becomes of the breaker and of the limit: a log line, a metric, the cluster."""

    def __init__(self, metrics: Metrics, signals: ClusterSignals | None) -> None:
        self._metrics = metrics.guard
        self._signals = signals
        self._heat = Assessment()

    def moved(self, transition: Transition) -> None:
        self._metrics.breaker_state.state(transition.after)
        self._metrics.breaker_transitions.labels(transition.after, transition.reason).inc()
        fields = {
            "from": transition.before,
            "to": transition.after,
            "reason": transition.reason,
            "why": transition.sentence,
        }
        _log.warning("breaker", extra={"fields": fields})
        self._tell(_CHANGES[transition.after], transition.reason)

    def limited(self, heat: Assessment) -> None:
        """Once a second; only a beginning and an end are told."""
        before, self._heat = self._heat, heat
        derated = heat.factor < 1
        if derated == (before.factor < 1) and heat.stale == before.stale:
            return
        fields = {"limit_factor": round(heat.factor, 2), "why": heat.sentence}
        _log.warning("limit of the engine", extra={"fields": fields})
        if derated != (before.factor < 1):
            self._tell("derated" if derated else "restored", Reason.THERMAL)

    def _tell(self, change: Change, reason: Reason) -> None:
        if self._signals is not None:
            self._signals.tell(change, (reason,))


def build_signals(settings: Settings) -> ClusterSignals | None:
    """None where the cluster is told nothing."""
    deployment, name = settings.signals_deployment, settings.pod_name
    namespace, uid = settings.pod_namespace, settings.pod_uid
    if not (deployment and name and namespace and uid):
        return None
    if not sandbox.available():
        _log.warning("workers can read the pod's token: this kernel has no Landlock")
    pod = Pod(namespace, name, uid)
    return ClusterSignals(
        lambda: ClusterApi(pod),
        deployment=deployment,
        max_unready_percent=settings.signals_max_unready_percent,
    )


async def watch_engine(
    guard: EngineGuard, engine: Engine, settings: Settings, metrics: Metrics, herald: Herald
) -> None:
    """For ever: tell the guard how the engine and its card are."""
    path = settings.gpu_file
    shown = GpuMetrics(metrics.registry, _thermal_profile(settings)) if path else None

    async def look() -> None:
        reading = await asyncio.to_thread(gpu.read, path) if path else None
        health = engine.health()
        guard.watch(_trouble(health, settings), health.reason, reading)
        herald.limited(guard.heat)
        if reading is not None and shown is not None:
            shown.show(reading, guard.heat.factor, stale=guard.heat.stale)

    await repeat(_WATCH_PERIOD_S, look)


def _trouble(health: EngineHealth, settings: Settings) -> Trouble | None:
    if health.leaks and settings.isolation_check == "enforce":
        return "leaking"
    return "dead" if health.dead_for_s >= _DEAD_AFTER_S else None
