"""Every metric and label that a board or a rule asks for is one that somebody emits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.generate import HERE, IN_CHART
from dashboards.scrape import listed, samples
from scripts.chart.render import ROOT
from tests.dashboards.boards import boards, grouping, made, parse, queries, selectors
from tests.dashboards.emitted import VLLM, everything, golden

RULES: dict[str, Any] = yaml.safe_load((HERE / "rules.yaml").read_text("utf-8"))
ASKED = [
    *(
        pytest.param(query, id=f"{name}: {title}")
        for name, board in boards().items()
        for title, query in queries(board)
    ),
    *(
        pytest.param(rule["expr"], id=f"{i}: {rule.get('alert') or rule['record']}")
        for group in RULES["groups"]
        for i, rule in enumerate(group["rules"])
    ),
]


@pytest.mark.parametrize("vllm", VLLM)
@pytest.mark.parametrize("query", ASKED)
def test_names_and_labels_are_emitted(query: str, vllm: str) -> None:
    series = everything(vllm)
    parsed = parse(query)
    labels = made(parsed)
    for selector in selectors(parsed):
        assert selector.name in series
        _, has = series[selector.name]
        assert selector.matchers.keys() <= has, selector.name
        labels |= has
    assert grouping(parsed) <= labels


def test_a_name_that_nobody_emits_is_found() -> None:
    with pytest.raises(AssertionError):
        test_names_and_labels_are_emitted("sum(hunyuan_ocr_pages)", VLLM[0])
    with pytest.raises(AssertionError):
        test_names_and_labels_are_emitted("sum by (tenant) (hunyuan_ocr_slots_held)", VLLM[0])


def test_legends_name_labels_that_are_there() -> None:
    series = everything(VLLM[0])
    for board in boards().values():
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                parsed = parse(target["expr"])
                named = {part.split("}}")[0] for part in target["legendFormat"].split("{{")[1:]}
                assert named <= grouping(parsed), panel["title"]
    assert series


def test_the_lists_of_dcgm_are_what_the_example_exports() -> None:
    example = yaml.safe_load((ROOT / "k8s/examples/dcgm-exporter/values.yaml").read_text("utf-8"))
    rows = [line.split(",") for line in example["customMetrics"].splitlines()]
    exported = {name.strip(): kind.strip() for name, kind, _ in rows}
    assert {n: kind for n, (kind, _) in golden("dcgm-exporter-4.8").items()} == exported


def test_a_scrape_is_written_down_without_its_values() -> None:
    scrape = """
# TYPE vllm:done_total counter
vllm:done_total{engine="0",why="stop"} 3.0
# TYPE vllm:wait_seconds histogram
vllm:wait_seconds_bucket{engine="0",le="1.0"} 1.0
vllm:wait_seconds_bucket{engine="0",le="+Inf"} 2.0
vllm:wait_seconds_sum{engine="0"} 5.0
vllm:wait_seconds_count{engine="0"} 2.0
# TYPE vllm:wait_seconds_created gauge
vllm:wait_seconds_created{engine="0"} 1.7e+09
"""
    lines = listed(scrape)
    assert lines == ["vllm:done_total counter engine why", "vllm:wait_seconds histogram engine"]
    assert samples(lines)["vllm:wait_seconds_bucket"] == ("histogram", {"engine", "le"})


@pytest.mark.parametrize("path", [HERE / "rules.yaml", IN_CHART / "rules.yaml"], ids=str)
def test_every_alert_says_what_to_do(path: Path) -> None:
    groups = yaml.safe_load(path.read_text("utf-8"))["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    for alert in alerts:
        said = alert["annotations"]
        assert said["summary"]
        assert said["description"]
        assert alert["labels"]["severity"] in ("page", "ticket")
        assert said["runbook_url"] == f"docs/runbooks/{alert['alert']}.md"
    books = {path.stem for path in (ROOT / "docs/runbooks").glob("HunyuanOcr*.md")}
    assert books == {alert["alert"] for alert in alerts}
