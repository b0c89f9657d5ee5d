"""Made-up hours of a release, each a table of series for promtool.

A value is promtool's: `0+60x90` begins at 0 and grows by 60 a sample, 90 times.
"""

from __future__ import annotations

from collections.abc import Mapping

NAMESPACE, JOB = "ocr", "ocr/hunyuan-ocr"
PODS = ("hunyuan-ocr-6d4b9c7f58-abcde", "hunyuan-ocr-6d4b9c7f58-fghij")
MINUTES = 90
ROUTE = 'method="POST",route="/v1/ocr"'
REQUESTS = "hunyuan_ocr_request_duration_seconds"

Table = dict[str, str]


def of_pod(name: str, labels: str = "", pod: int = 0, job: str = JOB) -> str:
    target = f'namespace="{NAMESPACE}",job="{job}",instance="10.0.0.{pod}:9180",pod="{PODS[pod]}"'
    return f"{name}{{{target}{',' if labels else ''}{labels}}}"


def grows(per_minute: float, minutes: int = MINUTES) -> str:
    return f"0+{per_minute}x{minutes}"


def stays(value: float, minutes: int = MINUTES) -> str:
    return f"{value}x{minutes}"


def answers(
    status: int,
    per_minute: float,
    *,
    minutes: int = MINUTES,
    within: float = 1.0,
    boundary: str = "2.0",
) -> Table:
    """Interactive requests, the share `within` of them within `boundary` seconds."""
    labels = f'{ROUTE},class="interactive",status="{status}"'
    return {
        of_pod(f"{REQUESTS}_count", labels): grows(per_minute, minutes),
        of_pod(f"{REQUESTS}_bucket", f'{labels},le="{boundary}"'): grows(
            per_minute * within, minutes
        ),
        of_pod(f"{REQUESTS}_bucket", f'{labels},le="120.0"'): grows(per_minute, minutes),
        of_pod(f"{REQUESTS}_bucket", f'{labels},le="+Inf"'): grows(per_minute, minutes),
    }


def quotas(per_minute: float, minutes: int = MINUTES) -> Table:
    return {of_pod("hunyuan_ocr_errors_total", 'code="quota_exceeded"'): grows(per_minute, minutes)}


def service(minutes: int = MINUTES, slo_s: float = 2) -> Table:
    """What every scrape of a healthy service has: 600 requests a minute, nearly all in time."""
    table = answers(200, 600, minutes=minutes, within=0.99) | quotas(0, minutes)
    steady = {
        of_pod("hunyuan_ocr_slo_interactive_seconds", f'le="{float(slo_s)}"'): slo_s,
        of_pod("hunyuan_ocr_engine_dead_seconds"): 0,
        **{
            of_pod("hunyuan_ocr_queue_fullness_ratio", f'class="{name}"'): 0.1
            for name in ("interactive", "standard", "batch")
        },
        **breaker("closed"),
        of_pod("hunyuan_ocr_gpu_limit_factor_ratio"): 1,
        of_pod("hunyuan_ocr_gpu_telemetry_stale"): 0,
        of_pod("hunyuan_ocr_usage_records_lost_total"): 0,
        **{of_pod("hunyuan_ocr_ready", pod=pod): 1 for pod in range(len(PODS))},
        **autoscaler(wanted=1),
    }
    table |= {name: stays(value, minutes) for name, value in steady.items()}
    table[of_pod("vllm:num_preemptions_total", 'model_name="hunyuan-ocr"')] = grows(0, minutes)
    return table | ended(600, minutes=minutes)


def breaker(state: str) -> Mapping[str, float]:
    label = "hunyuan_ocr_breaker_state"
    return {
        of_pod(label, f'{label}="{one}"'): float(one == state)
        for one in ("closed", "half_open", "open")
    }


def ended(per_minute: float, *, cut: float = 0.01, minutes: int = MINUTES) -> Table:
    """Pages that were read, the share `cut` of them cut off."""
    name = "hunyuan_ocr_finished_pages_total"
    shares = {"stop": 1 - cut, "length": cut}
    return {
        of_pod(name, f'task="text",reason="{reason}"'): grows(per_minute * share, minutes)
        for reason, share in shares.items()
    }


def autoscaler(
    wanted: int,
    most: int = 3,
    name: str = "hunyuan-ocr",
    target: str = "hunyuan-ocr",
    least: int = 1,
) -> Mapping[str, float]:
    prefix, label = "kube_horizontalpodautoscaler", f'horizontalpodautoscaler="{name}"'
    where = f'namespace="{NAMESPACE}",{label}'
    about = f'scaletargetref_kind="Deployment",scaletargetref_name="{target}"'
    return {
        f"{prefix}_info{{{where},{about}}}": 1,
        f"{prefix}_status_desired_replicas{{{where}}}": wanted,
        f"{prefix}_spec_max_replicas{{{where}}}": most,
        f"{prefix}_spec_min_replicas{{{where}}}": least,
    }


def steadily(values: Mapping[str, float]) -> Table:
    return {name: stays(value) for name, value in values.items()}
