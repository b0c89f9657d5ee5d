"""What the chart makes of boards and rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from scripts.chart.render import Manifest, manifests, only, template
from tests.chart.conftest import ci
from tests.dashboards.boards import boards, parse, selectors

ON: dict[str, Any] = {
    "podMonitor": {"enabled": True},
    "networkPolicy": {"monitoring": [{"namespaceSelector": {}}]},
    "monitoring": {"rules": {"enabled": True}, "dashboards": {"enabled": True}},
}
# etcd's limit of an object is 1.5 MiB, and `kubectl apply` may write a second copy into it.
_MOST_BYTES = 500_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    values = tmp_path_factory.mktemp("chart") / "values.yaml"
    values.write_text(yaml.safe_dump(ON), "utf-8")
    return manifests(template(ci("rtx-4090-d"), values))


def test_neither_is_made_unless_asked_for() -> None:
    documents = manifests(template(ci("rtx-4090-d")))
    assert not {d["kind"] for d in documents} & {"PrometheusRule", "PodMonitor"}
    assert not [d for d in documents if d["metadata"]["labels"].get("grafana_dashboard")]


def test_grafanas_sidecar_finds_every_board_whole(made: list[Manifest]) -> None:
    maps = [d for d in made if d["metadata"]["labels"].get("grafana_dashboard") == "1"]
    found = {}
    for document in maps:
        kubernetes_validate.validate(document, "1.37", strict=True)
        ((name, text),) = document["data"].items()
        assert name.endswith(".json")
        assert len(text.encode()) < _MOST_BYTES
        board = json.loads(text)
        found[board["uid"]] = board
    assert found == {board["uid"]: board for board in boards().values()}


def test_grafanas_label_can_be_taken_away(tmp_path: Path) -> None:
    changes = tmp_path / "values.yaml"
    labels = {"grafana_dashboard": None}
    dashboards = {"dashboards": {"enabled": True, "labels": labels}}
    changes.write_text(yaml.safe_dump({"monitoring": dashboards}), "utf-8")
    documents = manifests(template(ci("rtx-4090-d"), changes))
    assert (
        sum(d["kind"] == "ConfigMap" and "-board-" in d["metadata"]["name"] for d in documents) == 3
    )


def test_rules_are_about_what_the_releases_monitor_brings(made: list[Manifest]) -> None:
    monitor, rules = only(made, "PodMonitor"), only(made, "PrometheusRule")
    assert "jobLabel" not in monitor["spec"]
    where = monitor["metadata"]
    job = f"{where['namespace']}/{where['name']}"
    for group in rules["spec"]["groups"]:
        for rule in group["rules"]:
            for selector in selectors(parse(rule["expr"])):
                assert selector.matchers["namespace"] == where["namespace"], rule
                if not selector.name.startswith("kube_"):
                    assert selector.matchers["job"] == job, rule


def test_vllms_metrics_come_with_the_same_job(made: list[Manifest]) -> None:
    endpoints = only(made, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert [endpoint["path"] for endpoint in endpoints] == ["/metrics", "/metrics/engine"]
    for endpoint in endpoints:
        labels = {r.get("targetLabel") for r in endpoint.get("relabelings", ())}
        assert labels <= {"endpoint"}


def test_alerts_lead_to_where_the_runbooks_are(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    rules = {"enabled": True, "runbooks": "https://wiki.example.com/ocr/"}
    values.write_text(yaml.safe_dump(ON | {"monitoring": {"rules": rules}}), "utf-8")
    documents = manifests(template(ci("rtx-4090-d"), values))
    for group in only(documents, "PrometheusRule")["spec"]["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                url = f"https://wiki.example.com/ocr/{rule['alert']}.md"
                assert rule["annotations"]["runbook_url"] == url
