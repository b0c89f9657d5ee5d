"""Each alert fires in the trouble made for it and is silent in what looks like it, by promtool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.generate import HERE
from scripts.chart.render import manifests, only, template
from tests.chart.conftest import ci
from tests.dashboards_promtool.cases import CASES, Case
from tests.dashboards_promtool.hours import JOB, MINUTES, NAMESPACE, service
from tests.dashboards_promtool.promtool import holds, promtool

MONITORED: dict[str, Any] = {
    "fullnameOverride": "hunyuan-ocr",
    "podMonitor": {"enabled": True},
    "networkPolicy": {"monitoring": [{"namespaceSelector": {}}]},
    "monitoring": {"rules": {"enabled": True}},
}


@pytest.fixture(scope="session")
def of_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rules that the chart installs for a release of its own."""
    folder = tmp_path_factory.mktemp("chart")
    values = folder / "values.yaml"
    values.write_text(yaml.safe_dump(MONITORED), "utf-8")
    rule = only(manifests(template(ci("rtx-4090-d"), values)), "PrometheusRule")
    assert f"{rule['metadata']['namespace']}/{rule['metadata']['name']}" == JOB
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump(rule["spec"]), "utf-8")
    return path


@pytest.fixture(params=["by itself", "in the chart"])
def rules(request: pytest.FixtureRequest) -> Path:
    if request.param == "by itself":
        return HERE / "rules.yaml"
    found: Path = request.getfixturevalue("of_chart")
    return found


def names() -> set[str]:
    groups = yaml.safe_load((HERE / "rules.yaml").read_text("utf-8"))["groups"]
    return {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}


def firing(selector: str, at: int, number: int) -> dict[str, Any]:
    """At that minute so many series of ALERTS fire; 0: none."""
    return {
        "expr": f'count(count by (alertname) (ALERTS{{alertstate="firing",{selector}}}))',
        "eval_time": f"{at}m",
        "exp_samples": [{"labels": "{}", "value": number}] if number else [],
    }


def test_every_rule_is_one_that_prometheus_takes(rules: Path) -> None:
    promtool("check", "rules", rules)


def label(case: Case) -> str:
    return f"{case.alert}: {case.what}"


@pytest.mark.parametrize("case", CASES, ids=label)
def test_alert(case: Case, tmp_path: Path) -> None:
    judge(case, HERE / "rules.yaml", tmp_path)


# A day takes promtool seconds, and the chart's rules differ in their matchers alone.
@pytest.mark.parametrize("case", [c for c in CASES if c.minutes == MINUTES], ids=label)
def test_alert_of_the_chart(case: Case, of_chart: Path, tmp_path: Path) -> None:
    judge(case, of_chart, tmp_path)


def judge(case: Case, rules: Path, tmp_path: Path) -> None:
    selector = f'alertname="{case.alert}"' + (f',window="{case.window}"' if case.window else "")
    expected = firing(selector, case.at, int(case.fires))
    holds(tmp_path, rules, case.table, case.every, [expected])


def test_a_healthy_hour_calls_nobody(rules: Path, tmp_path: Path) -> None:
    expected = [firing('alertname=~".+"', at, 0) for at in range(5, 90, 5)]
    holds(tmp_path, rules, service(), "1m", expected)


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    for fires in (True, False):
        assert {case.alert for case in CASES if case.fires is fires} == names()


def test_an_idle_service_calls_nobody(rules: Path, tmp_path: Path) -> None:
    """Nothing is divided by no requests at all."""
    idle = {name: "0x90" if "+" in values else values for name, values in service().items()}
    holds(tmp_path, rules, idle, "1m", [firing('alertname=~".+"', 60, 0)])


def test_what_the_alert_says_can_be_read(tmp_path: Path) -> None:
    table = next(c for c in CASES if c.alert == "HunyuanOcrQueueSaturated" and c.fires).table
    expected = {
        "eval_time": "15m",
        "alertname": "HunyuanOcrQueueSaturated",
        "exp_alerts": [
            {
                "exp_labels": {
                    "severity": "ticket",
                    "namespace": NAMESPACE,
                    "job": JOB,
                    "class": "interactive",
                },
                "exp_annotations": {
                    "summary": f"The interactive queue is full ({JOB})",
                    "description": "The queue of class interactive has been 97% full for minutes; "
                    "pages of that class are refused with 429.",
                    "runbook_url": "docs/runbooks/HunyuanOcrQueueSaturated.md",
                },
            }
        ],
    }
    holds(tmp_path, HERE / "rules.yaml", table, "1m", [expected], "alert_rule_test")
