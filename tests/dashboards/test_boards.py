"""Rules that every board keeps."""

from __future__ import annotations

import itertools
import json
import re

import promql_parser as promql
import pytest

from dashboards.generate import BOARDS, IN_CHART, files
from tests.dashboards.boards import GROWTH, Json, boards, nodes, panels, parse, queries, selectors
from tests.dashboards.emitted import everything, golden, outside, recorded, service

ALL = boards()
QUERIES = [
    pytest.param(query, id=f"{name}: {title}")
    for name, board in ALL.items()
    for title, query in queries(board)
]
each_board = pytest.mark.parametrize("board", ALL.values(), ids=ALL)
each_query = pytest.mark.parametrize("query", QUERIES)


def test_what_is_written_is_what_is_generated() -> None:
    for path, text in files().items():
        assert path.read_text("utf-8") == text, f"{path} is stale: run `make format`"


def test_there_are_three_that_link_to_each_other() -> None:
    uids = {board["uid"] for board in ALL.values()}
    assert uids == {"hunyuan-ocr-overview", "hunyuan-ocr-gpu", "hunyuan-ocr-capacity"}
    for board in ALL.values():
        assert board["tags"] == ["hunyuan-ocr"]
        (link,) = board["links"]
        assert (link["type"], link["tags"]) == ("dashboards", board["tags"])
        assert link["includeVars"]
        assert link["keepTime"]


@pytest.mark.parametrize("name", BOARDS)
def test_the_charts_copy_is_the_same(name: str) -> None:
    copy = json.loads((IN_CHART / "dashboards" / f"{name}.json").read_text("utf-8"))
    assert copy == ALL[name]


@each_board
def test_no_data_source_is_hardcoded(board: Json) -> None:
    variables = board["templating"]["list"]
    assert variables[0] | {"name": "datasource", "type": "datasource"} == variables[0]
    asked = [*variables[1:], *panels(board), *(t for p in panels(board) for t in p["targets"])]
    for one in asked:
        assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    # And nowhere else by another name.
    assert json.dumps(board).count('"uid"') == len(asked) + 1


@each_board
def test_variables_narrow_each_other_down(board: Json) -> None:
    namespace, job, instance, pod = board["templating"]["list"][1:]
    assert [v["name"] for v in (namespace, job, instance, pod)] == [
        "namespace", "job", "instance", "pod",
    ]  # fmt: skip
    assert job["query"]["query"].count("$") == 1
    assert 'namespace=~"$namespace",job=~"$job"' in instance["query"]["query"]
    # All of nothing would be everything that Prometheus knows of.
    assert not any("allValue" in variable for variable in (namespace, job, instance, pod))


@each_board
def test_every_panel_says_what_it_shows_and_in_what(board: Json) -> None:
    titles = [panel["title"] for panel in panels(board)]
    assert all(titles)
    for panel in panels(board):
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        text = panel["description"]
        shown = {s.name for t in panel["targets"] for s in selectors(parse(t["expr"]))}
        assert shown, panel["title"]
        assert shown == set(re.findall(r"`([^`]+)`", text.rsplit("From ", 1)[1])), panel["title"]
        assert text.split("\n\n")[0], panel["title"]


@each_board
def test_panels_neither_overlap_nor_stick_out(board: Json) -> None:
    def cells(panel: Json) -> set[tuple[int, int]]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        columns = range(at["x"], at["x"] + at["w"])
        return set(itertools.product(columns, range(at["y"], at["y"] + at["h"])))

    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        inside = panel.get("panels", [])
        for one in (panel, *inside):
            assert not taken & cells(one), one["title"]
            taken |= cells(one)
        assert panel.get("collapsed", False) == bool(inside)
    numbers = [p["id"] for p in (*board["panels"], *panels(board)) if p["type"] == "row"]
    numbers += [p["id"] for p in panels(board)]
    assert len(numbers) == len(set(numbers))


def test_the_overview_goes_from_users_to_causes() -> None:
    rows = [panel["title"] for panel in ALL["overview"]["panels"] if panel["type"] == "row"]
    assert rows == [
        "Now",
        "Error budget and burn",
        "SLO and errors",
        "Latency by stage",
        "Saturation and scaling",
        "Breaker and GPU",
        "vLLM",
        "Workload",
        "GPU as DCGM sees it",
        "Pods",
        "Process",
    ]
    folded = [p["title"] for p in ALL["overview"]["panels"] if p.get("collapsed")]
    assert folded == ["Process"]
    tiles = [panel["title"] for panel in panels(ALL["overview"])][:8]
    assert tiles == [
        "Requests", "Error ratio", "Within SLO", "p95 interactive", "Shed ratio", "Slots in use",
        "Waiting in vLLM", "Unreachable",
    ]  # fmt: skip


@each_query
def test_every_query_heeds_the_variables(query: str) -> None:
    of_pods, of_all = outside(), recorded()
    for selector in selectors(parse(query)):
        variables = {value for value in selector.matchers.values() if value.startswith("$")}
        # What was never reached is no instance that could be chosen.
        if selector.name in of_all or selector.name in ("ALERTS", "up"):
            wanted = {"$namespace", "$job"}
        elif selector.name.startswith("kube_horizontalpodautoscaler"):
            wanted = {"$namespace"}  # which has no pod
        elif selector.name in of_pods:
            wanted = {"$namespace", "$pod"}
        else:
            wanted = {"$namespace", "$job", "$instance"}
        assert variables == wanted, selector


@each_query
def test_counters_are_shown_as_growth(query: str) -> None:
    series = everything("vllm-0.32")
    for selector in selectors(parse(query)):
        kind, _ = series[selector.name]
        grows = kind in ("counter", "histogram")
        assert grows == (selector.within in GROWTH), selector
    for growth in re.findall(r"(?:rate|increase)\([^[]*\[([^]]*)\]", query):
        assert growth == "$__rate_interval"


@each_query
def test_nothing_is_divided_by_what_may_be_zero(query: str) -> None:
    for node in nodes(parse(query)):
        if not isinstance(node, promql.BinaryExpr) or str(node.op) != "/":
            continue
        below = node.rhs
        while isinstance(below, promql.ParenExpr | promql.AggregateExpr):
            below = below.expr
        if isinstance(below, promql.NumberLiteral):
            assert below.val > 0
            continue
        assert isinstance(below, promql.BinaryExpr), query
        assert str(below.op) == ">", query


def test_process_metrics_of_vllm_are_not_taken_for_the_services() -> None:
    both = golden("vllm-0.32").keys() & service().keys()
    assert "process_cpu_seconds_total" in both
    for param in QUERIES:
        for selector in selectors(parse(str(param.values[0]))):
            if selector.name in both:
                assert selector.matchers["endpoint"] == "engine"
