"""What calls somebody: budgets that burn, and states that do not go away by themselves.

`page`: now. `ticket`: in working hours.
"""

from __future__ import annotations

from dashboards.promql import Scope, ratio
from dashboards.rules import JOB, Rule
from dashboards.slo import AVAILABILITY, LATENCY, Objective

RUNBOOKS = "docs/runbooks"

# Long window, short window, times as fast as the budget allows.
_BURNS = (
    ("1h", "5m", 14.4, "page"),
    ("6h", "30m", 6, "page"),
    ("1d", "2h", 3, "ticket"),
    ("3d", "6h", 1, "ticket"),
)
# Fewer bad requests than these are no trend: at night one is a large share of all.
_BAD_MIN = 5
# A release that was removed is forgotten after this.
_GONE_AFTER = "6h"


def alerting_rules(matchers: tuple[str, ...], namespace: tuple[str, ...]) -> list[Rule]:
    """For the service's series that `matchers` select; those of kube-state-metrics, which has no
    labels of the service's job, by `namespace`.
    """
    return [
        *_burns(
            AVAILABILITY,
            "HunyuanOcrErrorBudgetBurn",
            "Requests fail or are refused",
            "of the requests that count failed or were refused for want of capacity",
            matchers,
        ),
        *_burns(
            LATENCY,
            "HunyuanOcrLatencyBudgetBurn",
            "Interactive requests are slow",
            "of the interactive requests took longer than HYOCR_SLO_INTERACTIVE_S",
            matchers,
        ),
        *_of_capacity(Scope(matchers, "5m"), namespace),
        *_of_the_engine(Scope(matchers, "15m")),
        *_of_the_gpu(Scope(matchers, "5m")),
        _records_lost(Scope(matchers, "15m")),
    ]


def _alert(name: str, expr: str, wait: str, severity: str, summary: str, description: str) -> Rule:
    return {
        "alert": name,
        "expr": expr,
        **({"for": wait} if wait else {}),
        "labels": {"severity": severity},
        "annotations": {
            "summary": summary,
            "description": description,
            "runbook_url": f"{RUNBOOKS}/{name}.md",
        },
    }


def _burns(
    objective: Objective, name: str, summary: str, of_what: str, matchers: tuple[str, ...]
) -> list[Rule]:
    recorded = Scope(matchers, "")
    bad = recorded.series(f"{objective.bad}:rate5m")
    rules = []
    for long, short, factor, severity in _BURNS:
        limit = f"{factor} * {objective.budget}"
        expr = " and ".join(
            (
                f"{recorded.series(objective.ratio(long))} > {limit}",
                f"{recorded.series(objective.ratio(short))} > {limit}",
                # Each sample stands for its part of five minutes, of a new release too.
                f"300 * sum_over_time({bad}[{long}]) / count_over_time({bad}[5m]) > {_BAD_MIN}",
            )
        )
        rule = _alert(
            name,
            expr,
            "",
            severity,
            f"{summary} ({{{{ $labels.job }}}})",
            f"{{{{ $value | humanizePercentage }}}} {of_what} within {long}: more than {factor} "
            "times what the budget of 30 days allows.",
        )
        rule["labels"] |= {"objective": objective.name, "window": long}
        rules.append(rule)
    return rules


def _of_capacity(scope: Scope, namespace: tuple[str, ...]) -> list[Rule]:
    ready = scope.series("hunyuan_ocr_ready")
    fullness = scope.series("hunyuan_ocr_queue_fullness_ratio")
    seen = f"count by (namespace, job) (count_over_time({ready}[{_GONE_AFTER}]))"
    return [
        _alert(
            "HunyuanOcrNoReadyReplica",
            f"{seen} unless (sum by (namespace, job) ({ready}) > 0)",
            "2m",
            "page",
            "No replica is ready ({{ $labels.job }})",
            "Nobody is served: no replica of {{ $labels.job }} in {{ $labels.namespace }} has "
            "been ready, or could be asked, for 2 minutes.",
        ),
        _alert(
            "HunyuanOcrQueueSaturated",
            # Averaged, since work comes and goes between two looks at a full queue.
            f"max by (namespace, job, class) (avg_over_time({fullness}[5m])) > 0.8",
            "5m",
            "ticket",
            "The {{ $labels.class }} queue is full ({{ $labels.job }})",
            "The queue of class {{ $labels.class }} has been {{ $value | humanizePercentage }} "
            "full for minutes; pages of that class are refused with 429.",
        ),
        _alert(
            "HunyuanOcrScalerAtMax",
            _scaler_at_max(ready, namespace),
            "15m",
            "ticket",
            "The autoscaler is at its most pods ({{ $labels.horizontalpodautoscaler }})",
            "{{ $labels.horizontalpodautoscaler }} in {{ $labels.namespace }} has wanted "
            "{{ $value }} pods, all that it may have, for 15 minutes: it may want more.",
        ),
    ]


def _scaler_at_max(ready: str, namespace: tuple[str, ...]) -> str:
    """Of the autoscalers whose Deployment the service's pods belong to."""
    kube = Scope(namespace, "")
    most = kube.series("kube_horizontalpodautoscaler_spec_max_replicas")
    at_max = (
        f"{kube.series('kube_horizontalpodautoscaler_status_desired_replicas')} >= {most} "
        # One that has no choice wants nothing.
        f"and {most} > {kube.series('kube_horizontalpodautoscaler_spec_min_replicas')}"
    )
    target = kube.series("kube_horizontalpodautoscaler_info", 'scaletargetref_kind="Deployment"')
    ours = (
        f'label_replace({target}, "deployment", "$1", "scaletargetref_name", "(.+)") '
        f'and on (namespace, deployment) label_replace({ready}, "deployment", "$1", "pod", '
        '"(.+)-[^-]+-[^-]+")'
    )
    label = "namespace, horizontalpodautoscaler"
    return f"max by ({label}) ({at_max}) and on ({label}) ({ours})"


def _of_the_engine(scope: Scope) -> list[Rule]:
    s = scope.series
    ended = scope.rate("hunyuan_ocr_finished_pages_total", by=JOB)
    cut = scope.rate("hunyuan_ocr_finished_pages_total", 'reason="length"', by=JOB)
    preempted = s("vllm:num_preemptions_total")
    closed = s("hunyuan_ocr_breaker_state", 'hunyuan_ocr_breaker_state="closed"')
    return [
        _alert(
            "HunyuanOcrEngineHung",
            f"{s('hunyuan_ocr_engine_dead_seconds')} > 30",
            "",
            "page",
            "The engine is dead or hangs ({{ $labels.instance }})",
            "The engine of {{ $labels.pod }} {{ $labels.instance }} has made no step for "
            "{{ $value | humanizeDuration }}; its probe restarts it after "
            "HYOCR_ENGINE_HUNG_LIMIT_S.",
        ),
        _alert(
            "HunyuanOcrBreakerOpen",
            f"{closed} == 0",
            "2m",
            "page",
            "The circuit breaker does not close ({{ $labels.instance }})",
            "The breaker of {{ $labels.pod }} {{ $labels.instance }} has been open or half-open "
            "for 2 minutes; it refuses pages with 503 breaker_open.",
        ),
        _alert(
            "HunyuanOcrEnginePreemptions",
            # Of this service's engines, not of whatever else runs vLLM.
            f"increase({preempted}[15m]) > 5 and on (namespace, job) {s('hunyuan_ocr_ready')}",
            "5m",
            "ticket",
            "vLLM preempts requests ({{ $labels.instance }})",
            "vLLM of {{ $labels.pod }} {{ $labels.instance }} threw {{ $value | humanize }} "
            "requests out of its KV cache within 15 minutes and began them anew.",
        ),
        _alert(
            "HunyuanOcrAnswersTruncated",
            f"{ratio(cut, ended)} > 0.05 and 900 * {ended} > 20",
            "15m",
            "ticket",
            "Answers are cut off ({{ $labels.job }})",
            "{{ $value | humanizePercentage }} of the pages ended at the limit of tokens: their "
            "text is not whole.",
        ),
    ]


def _of_the_gpu(scope: Scope) -> list[Rule]:
    factor = scope.series("hunyuan_ocr_gpu_limit_factor_ratio")
    stale = scope.series("hunyuan_ocr_gpu_telemetry_stale")
    return [
        _alert(
            "HunyuanOcrGpuMarginLow",
            # Silent sensors lower the factor too, and have an alert of their own.
            f"{factor} < 1 and {stale} == 0",
            "5m",
            "ticket",
            "Heat takes slots away ({{ $labels.instance }})",
            "The GPU of {{ $labels.pod }} {{ $labels.instance }} is so near to being slowed down "
            "that {{ $value | humanizePercentage }} of its slots are left.",
        ),
        _alert(
            "HunyuanOcrGpuTelemetryStale",
            f"{stale} == 1",
            "2m",
            "ticket",
            "The GPU's sensors are silent ({{ $labels.instance }})",
            "Nothing is known of the GPU of {{ $labels.pod }} {{ $labels.instance }}: its limit "
            "is lowered to be careful, and heat would not be seen.",
        ),
    ]


def _records_lost(scope: Scope) -> Rule:
    lost = scope.series("hunyuan_ocr_usage_records_lost_total")
    return _alert(
        "HunyuanOcrUsageRecordsLost",
        f"increase({lost}[15m]) > 0",
        "",
        "ticket",
        "Usage is not recorded ({{ $labels.instance }})",
        "{{ $value | humanize }} usage records of {{ $labels.pod }} {{ $labels.instance }} were "
        "not written within 15 minutes: requests are served that nobody will be charged for.",
    )
