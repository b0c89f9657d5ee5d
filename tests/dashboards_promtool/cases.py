"""For each alert trouble in which it fires, and what looks like it and is none."""

from __future__ import annotations

from dataclasses import dataclass

from tests.dashboards_promtool.hours import (
    MINUTES,
    REQUESTS,
    ROUTE,
    Table,
    answers,
    autoscaler,
    breaker,
    ended,
    grows,
    of_pod,
    quotas,
    service,
    stays,
    steadily,
)


@dataclass(frozen=True, slots=True)
class Case:
    """`alert` (of `window`, where it has several) fires or does not at the minute `at`, when
    `changes` come to a healthy service.
    """

    alert: str
    what: str
    changes: Table
    fires: bool
    at: int = 60
    window: str = ""
    minutes: int = MINUTES
    every: str = "1m"
    slo_s: float = 2

    @property
    def table(self) -> Table:
        return service(self.minutes, self.slo_s) | self.changes


_BURN, _SLOW = "HunyuanOcrErrorBudgetBurn", "HunyuanOcrLatencyBudgetBurn"
# Window of the alert, minutes after which it is full, shares of bad requests beyond and below it.
_WINDOWS = {
    "1h": (65, 0.02, 0.01),
    "6h": (370, 0.008, 0.004),
    "1d": (1470, 0.004, 0.002),
    "3d": (4350, 0.002, 0.0005),
}
_SLOW_SHARES = {"1h": (0.8, 0.6), "6h": (0.4, 0.2), "1d": (0.2, 0.1), "3d": (0.08, 0.03)}


def _burns() -> list[Case]:
    cases = []
    for window, (minutes, much, little) in _WINDOWS.items():
        every = "1m" if minutes < 100 else "5m" if minutes < 1000 else "15m"
        slow_much, slow_little = _SLOW_SHARES[window]
        for fires, share, slow in ((True, much, slow_much), (False, little, slow_little)):
            word = "spends its budget" if fires else "keeps within its budget"
            at = {"at": minutes, "minutes": minutes, "window": window, "every": every}
            failed = answers(503, 600 * share, minutes=minutes)
            late = answers(200, 600, minutes=minutes, within=1 - slow)
            cases += [
                Case(_BURN, f"{window} {word}", failed, fires, **at),  # type: ignore[arg-type]
                Case(_SLOW, f"{window} {word}", late, fires, **at),  # type: ignore[arg-type]
            ]
    return cases


CASES = [
    *_burns(),
    Case(
        _BURN,
        "refusals for want of capacity count",
        answers(429, 60),
        True,
        window="1h",
    ),
    Case(
        _BURN,
        "quotas count neither way",
        answers(429, 600) | quotas(600),
        False,
        window="1h",
    ),
    Case(
        _BURN,
        "a quota does not hide refusals beside it",
        answers(429, 660) | quotas(600),
        True,
        window="1h",
    ),
    Case(_BURN, "callers' mistakes count neither way", answers(422, 6000), False, window="1h"),
    Case(_BURN, "clients that left count neither way", answers(499, 6000), False, window="1h"),
    Case(
        _BURN,
        "two failures of a quiet night are no trend",
        {
            **answers(200, 1),
            of_pod(f"{REQUESTS}_count", f'{ROUTE},class="interactive",status="503"'): (
                "0x30 1x20 2x40"
            ),
        },
        False,
        window="1h",
    ),
    *(
        Case(
            _BURN,
            f"two failures of a release that is new ({window})",
            {
                **answers(200, 2),
                of_pod(f"{REQUESTS}_count", f'{ROUTE},class="interactive",status="503"'): (
                    "0x20 1x5 2x40"
                ),
            },
            False,
            at=33,
            window=window,
        )
        for window in _WINDOWS
    ),
    Case(
        _BURN,
        "what is over calls nobody",
        {of_pod(f"{REQUESTS}_count", f'{ROUTE},class="batch",status="500"'): "0+600x30 18000x60"},
        False,
        at=45,
        window="1h",
    ),
    Case(
        _SLOW,
        "the setting moves the boundary",
        answers(200, 600, within=1.0, boundary="2.5") | answers(200, 600, within=0.1),
        False,
        window="1h",
        slo_s=2.5,
    ),
    Case(
        _SLOW,
        "late with that setting is late",
        answers(200, 600, within=0.1, boundary="2.5") | answers(200, 600, within=0.1),
        True,
        window="1h",
        slo_s=2.5,
    ),
    Case(
        _SLOW,
        "batch may take its time",
        {
            of_pod(f"{REQUESTS}_count", f'{ROUTE},class="batch",status="200"'): grows(6000),
            of_pod(f"{REQUESTS}_bucket", f'{ROUTE},class="batch",status="200",le="2.0"'): grows(0),
        },
        False,
        window="1h",
    ),
    Case("HunyuanOcrBreakerOpen", "open", steadily(breaker("open")), True, at=5),
    Case(
        "HunyuanOcrBreakerOpen",
        "between open and half-open",
        {
            of_pod("hunyuan_ocr_breaker_state", f'hunyuan_ocr_breaker_state="{state}"'): values
            for state, values in (
                ("closed", "0x90"),
                ("half_open", "0 1 0 1 0 1 0 1 0 1"),
                ("open", "1 0 1 0 1 0 1 0 1 0"),
            )
        },
        True,
        at=5,
    ),
    Case(
        "HunyuanOcrBreakerOpen",
        "open for a moment",
        {
            of_pod("hunyuan_ocr_breaker_state", 'hunyuan_ocr_breaker_state="closed"'): (
                "1x10 0 1x60"
            )
        },
        False,
        at=12,
    ),
    Case(
        "HunyuanOcrGpuMarginLow",
        "heat takes slots",
        {of_pod("hunyuan_ocr_gpu_limit_factor_ratio"): stays(0.6)},
        True,
        at=10,
    ),
    Case(
        "HunyuanOcrGpuMarginLow",
        "it is the silent sensors that do",
        {
            of_pod("hunyuan_ocr_gpu_limit_factor_ratio"): stays(0.7),
            of_pod("hunyuan_ocr_gpu_telemetry_stale"): stays(1),
        },
        False,
    ),
    Case(
        "HunyuanOcrGpuTelemetryStale",
        "silent",
        {of_pod("hunyuan_ocr_gpu_telemetry_stale"): stays(1)},
        True,
        at=5,
    ),
    Case(
        "HunyuanOcrGpuTelemetryStale",
        "silent for a moment",
        {of_pod("hunyuan_ocr_gpu_telemetry_stale"): "0x10 1 0x60"},
        False,
        at=11,
    ),
    Case(
        "HunyuanOcrQueueSaturated",
        "full",
        {of_pod("hunyuan_ocr_queue_fullness_ratio", 'class="interactive"'): stays(0.97)},
        True,
        at=10,
    ),
    Case(
        "HunyuanOcrQueueSaturated",
        "half full",
        {of_pod("hunyuan_ocr_queue_fullness_ratio", 'class="interactive"'): stays(0.5)},
        False,
    ),
    Case(
        "HunyuanOcrEngineHung",
        "hangs for a minute",
        {of_pod("hunyuan_ocr_engine_dead_seconds"): "0 0 40"},
        True,
        at=2,
    ),
    Case(
        "HunyuanOcrEngineHung",
        "hangs for a moment",
        {of_pod("hunyuan_ocr_engine_dead_seconds"): "0 0 12 0 0"},
        False,
        at=2,
    ),
    Case(
        "HunyuanOcrEnginePreemptions",
        "two a minute",
        {of_pod("vllm:num_preemptions_total", 'model_name="hunyuan-ocr"'): grows(2)},
        True,
        at=30,
    ),
    Case(
        "HunyuanOcrEnginePreemptions",
        "those of somebody else's vLLM",
        {of_pod("vllm:num_preemptions_total", 'model_name="chat"', job="chat"): grows(50)},
        False,
        at=30,
    ),
    Case("HunyuanOcrAnswersTruncated", "a tenth cut off", ended(600, cut=0.1), True),
    Case(
        "HunyuanOcrAnswersTruncated",
        "one page of a quiet hour",
        ended(0.2, cut=0.5),
        False,
    ),
    Case(
        "HunyuanOcrNoReadyReplica",
        "none ready",
        {of_pod("hunyuan_ocr_ready", pod=pod): "1x10 0x80" for pod in (0, 1)},
        True,
        at=15,
    ),
    Case(
        "HunyuanOcrNoReadyReplica",
        "nobody can be asked",
        {of_pod("hunyuan_ocr_ready", pod=pod): "1x10 stale" for pod in (0, 1)},
        True,
        at=15,
    ),
    Case(
        "HunyuanOcrNoReadyReplica",
        "one of two",
        {of_pod("hunyuan_ocr_ready", pod=1): stays(0)},
        False,
    ),
    Case(
        "HunyuanOcrNoReadyReplica",
        "nobody can be asked for an hour",
        {of_pod("hunyuan_ocr_ready", pod=pod): "1x10 stale" for pod in (0, 1)},
        True,
        at=75,
    ),
    Case(
        "HunyuanOcrNoReadyReplica",
        "a release that was removed is forgotten",
        {of_pod("hunyuan_ocr_ready", pod=pod): "1x10 stale" for pod in (0, 1)},
        False,
        at=380,
        minutes=390,
        every="5m",
    ),
    Case("HunyuanOcrScalerAtMax", "at its most", steadily(autoscaler(wanted=3)), True, at=30),
    Case("HunyuanOcrScalerAtMax", "below", steadily(autoscaler(wanted=2)), False),
    Case(
        "HunyuanOcrScalerAtMax",
        "it has no choice",
        steadily(autoscaler(wanted=3, least=3)),
        False,
    ),
    Case(
        "HunyuanOcrScalerAtMax",
        "that of another Deployment of the namespace",
        steadily(autoscaler(wanted=3, name="chat", target="chat")),
        False,
    ),
    Case(
        "HunyuanOcrScalerAtMax",
        "KEDA's name for it",
        steadily(autoscaler(wanted=3, name="keda-hpa-hunyuan-ocr")),
        True,
        at=30,
    ),
    Case(
        "HunyuanOcrUsageRecordsLost",
        "one is lost",
        {of_pod("hunyuan_ocr_usage_records_lost_total"): "0x30 1x60"},
        True,
        at=35,
    ),
    Case(
        "HunyuanOcrUsageRecordsLost",
        "one was lost an hour ago",
        {of_pod("hunyuan_ocr_usage_records_lost_total"): "0x10 1x80"},
        False,
        at=75,
    ),
]
