"""What the boards' queries come to, for series whose answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dashboards.generate import HERE
from tests.dashboards.boards import boards, panels
from tests.dashboards_promtool.hours import (
    JOB,
    NAMESPACE,
    PODS,
    REQUESTS,
    ROUTE,
    Table,
    answers,
    breaker,
    grows,
    of_pod,
    quotas,
    service,
    stays,
    steadily,
)
from tests.dashboards_promtool.promtool import holds

CHOSEN = {
    "$__rate_interval": "5m",
    "$namespace": NAMESPACE,
    "$job": JOB,
    "$instance": r"10\\.0\\.0\\..+",
    "$pod": "|".join(PODS),
}
OFFERED = "hunyuan_ocr_offered_engine_seconds_total"


def query(board: str, title: str, target: int = 0) -> str:
    (panel,) = (p for p in panels(boards()[board]) if p["title"] == title)
    text: str = panel["targets"][target]["expr"]
    for variable, value in CHOSEN.items():
        text = text.replace(variable, value)
    return text


def shown(folder: Path, text: str, table: Table, expected: list[tuple[str, float]]) -> None:
    samples = [{"labels": labels, "value": value} for labels, value in expected]
    test: dict[str, Any] = {"expr": text, "eval_time": "60m", "exp_samples": samples}
    holds(folder, HERE / "rules.yaml", table, "1m", [test])


def rounded(text: str) -> str:
    return f"round({text}, 0.0001)"


@pytest.mark.parametrize(
    ("title", "changes", "value"),
    [
        ("Requests", {}, 10),
        ("Error ratio", {}, 0),
        ("Error ratio", answers(503, 600), 0.5),
        ("Error ratio", answers(429, 600) | quotas(600), 0),
        ("Error ratio", answers(429, 1200) | quotas(600), 0.5),
        ("Error ratio", answers(422, 600) | answers(499, 600), 0),
        ("Within SLO", {}, 0.99),
        ("Within SLO", answers(200, 600, within=0), 0),
        # Failures are in no hurry, and count elsewhere.
        ("Within SLO", answers(503, 600, within=1), 0.99),
        (
            "Shed ratio",
            {
                of_pod(OFFERED, f'outcome="{outcome}"'): grows(per_minute)
                for outcome, per_minute in (
                    ("admitted", 60),
                    ("queue_full", 15),
                    ("deadline_unreachable", 5),
                )
            },
            0.25,
        ),
        ("Shed ratio", {of_pod(OFFERED, 'outcome="admitted"'): grows(60)}, 0),
        (
            "Slots in use",
            {
                of_pod("hunyuan_ocr_slots_held", pod=pod): stays(held)
                for pod, held in ((0, 16), (1, 4))
            }
            | {of_pod("hunyuan_ocr_slots_limit", pod=pod): stays(16) for pod in (0, 1)},
            0.625,
        ),
        ("Unreachable", {of_pod("up", pod=pod): stays(1) for pod in (0, 1)}, 0),
        ("Unreachable", {of_pod("up", pod=pod): stays(pod) for pod in (0, 1)}, 1),
        ("Alerts firing", {}, 0),
        ("Alerts firing", {of_pod("hunyuan_ocr_gpu_telemetry_stale"): stays(1)}, 1),
        ("Availability budget left", {}, 1),
    ],
)
def test_tile(title: str, changes: Table, value: float, tmp_path: Path) -> None:
    shown(tmp_path, rounded(query("overview", title)), service() | changes, [("{}", value)])


@pytest.mark.parametrize("title", ["Error ratio", "Within SLO", "p95 interactive", "Shed ratio"])
def test_a_tile_without_traffic_is_empty_and_not_alarming(title: str, tmp_path: Path) -> None:
    idle = {name: "0x90" if "+" in values else values for name, values in service().items()}
    shown(tmp_path, f"{query('overview', title)} >= 0", idle, [])


@pytest.mark.parametrize(("state", "value"), [("closed", 0), ("half_open", 1), ("open", 2)])
def test_the_breakers_states_are_told_apart(state: str, value: float, tmp_path: Path) -> None:
    pod = f'{{pod="{PODS[0]}",instance="10.0.0.0:9180"}}'
    table = service() | steadily(breaker(state))
    shown(tmp_path, query("overview", "Breaker"), table, [(pod, value)])


@pytest.mark.parametrize(
    "labels",
    [
        f'namespace="{NAMESPACE}",pod="{PODS[0]}",job="dcgm-exporter"',
        f'namespace="monitoring",pod="dcgm-exporter-x",job="dcgm-exporter",'
        f'exported_namespace="{NAMESPACE}",exported_pod="{PODS[0]}"',
    ],
    ids=["labels honoured", "labels not honoured"],
)
def test_cards_of_our_pods_are_found_at_dcgms(labels: str, tmp_path: Path) -> None:
    card = 'Hostname="node-1",gpu="0"'
    table = {
        f"DCGM_FI_DEV_GPU_TEMP{{{labels},{card}}}": stays(71),
        'DCGM_FI_DEV_GPU_TEMP{namespace="ocr",pod="other",Hostname="node-1",gpu="1"}': stays(80),
    }
    shown(tmp_path, query("overview", "Temperature"), table, [(f"{{{card}}}", 71)])


def test_a_burn_rate_is_so_many_times_what_is_allowed(tmp_path: Path) -> None:
    table = service() | answers(500, 600 * 0.01)
    (hour,) = (
        query("overview", "Availability burn rate", i)
        for i in range(4)
        if "rate1h" in query("overview", "Availability burn rate", i)
    )
    # 1 % of 101 %, of which a thousandth may be bad.
    shown(tmp_path, f"round({hour}, 0.1)", table, [("{}", 9.9)])


def test_batch_does_not_count_as_interactive(tmp_path: Path) -> None:
    labels = f'{ROUTE},class="batch",status="200"'
    slow = {
        of_pod(f"{REQUESTS}_count", labels): grows(6000),
        of_pod(f"{REQUESTS}_bucket", f'{labels},le="2.0"'): grows(0),
        of_pod(f"{REQUESTS}_bucket", f'{labels},le="+Inf"'): grows(6000),
    }
    text = rounded(query("overview", "Within SLO"))
    shown(tmp_path, text, service() | slow, [("{}", 0.99)])
