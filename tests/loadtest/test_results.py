"""What is written: summary, CSV, report, curves and values."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import yaml

from loadtest import advice, plots, report, results
from loadtest.fake_law import Law
from loadtest.results import ResultsUnusable, from_json, to_csv, to_json
from loadtest.sweep import Findings
from tests.loadtest.findings import LEVELS, SIXTEEN, step, summary


def test_a_summary_is_read_back_as_it_was_written() -> None:
    written = summary(SIXTEEN)
    text = to_json(written)
    assert "\n" not in text
    assert from_json(text) == written
    assert json.loads(text)["result"]["knee"]["load"] == pytest.approx(16, rel=0.05)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"about": 1}'])
def test_what_is_no_summary_is_refused(text: str) -> None:
    with pytest.raises(ResultsUnusable):
        from_json(text)


def test_the_table_has_a_line_for_each_step_and_its_counts_add_up() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(summary(SIXTEEN).findings))))
    assert len(rows) == len(LEVELS) + 2
    outcomes = (
        "in_time", "late", "refused", "failed", "broken", "unreachable", "timed_out", "unsent",
    )  # fmt: skip
    for row in rows:
        assert int(row["due"]) == sum(int(row[name]) for name in outcomes)
    assert rows[0]["temperature_c"] == "61.0"
    assert rows[-1]["refused"] == "50"


def test_values_follow_from_the_knee_and_the_open_loop() -> None:
    values = yaml.safe_load(advice.values(summary(SIXTEEN, p95_s=5.0), "h200"))
    assert values["profiles"] == {"h200": {"maxNumSeqs": 16}}
    assert values["autoscaling"] == {"targetPercent": 50}


def test_a_promise_that_breaks_before_the_knee_decides() -> None:
    law = Law(0.5, knee=32, growth=0.9)
    promise = law.latency_quantile_s(12, 0.95) * 1.01
    assert advice.sequences(summary(law, p95_s=promise).findings) == 12


def test_pods_share_the_load() -> None:
    assert advice.sequences(summary(SIXTEEN, p95_s=5.0).findings, pods=4) == 4


def test_where_nothing_held_no_setting_follows() -> None:
    text = advice.values(summary(SIXTEEN, p95_s=0.001), "h200")
    assert yaml.safe_load(text) is None
    assert "held at no level" in text


def test_where_more_was_never_tried_no_setting_follows() -> None:
    found = summary(Law(0.5), p95_s=5.0)
    assert found.findings.boundary.failed is None
    assert advice.sequences(found.findings) is None
    one = replace(found, findings=Findings([step(SIXTEEN, 4, found.slo)]))
    assert yaml.safe_load(advice.values(one, "h200")) is None


def test_no_knee_is_said_and_why() -> None:
    told = " ".join(advice.sentences(summary(Law(0.5), p95_s=5.0)))
    assert "No knee: throughput still grew at the last level" in told


def test_the_generators_limit_is_said() -> None:
    found = summary(SIXTEEN)
    limited = step(SIXTEEN, 64, found.slo, limit="requests were sent late (p95 90 ms)")
    told = advice.sentences(replace(found, findings=Findings([*found.findings.steps, limited])))
    assert any("requests were sent late" in sentence for sentence in told)


class _Checked(HTMLParser):
    """Notes what a browser would fetch, and whether every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        links = [value for name, value in attrs if name in ("src", "href") and value]
        self.fetched += [link for link in links if not link.startswith("#")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [v for k, v in attrs if k == "src" and v]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_needs_nothing_beside_it() -> None:
    found = summary(SIXTEEN, p95_s=5.0, name="<with> sidecar")
    text = report.html([found], plots.svg(plots.draw([found])), "rtx-4090-d")
    page = _Checked()
    page.feed(text)
    assert not page.open
    assert not page.fetched
    assert "&lt;with&gt; sidecar" in text
    assert "maxNumSeqs: 16" in text
    assert text.count("<tr>") == 1 + len(LEVELS) + 2


def test_curves_of_several_sweeps_lie_over_each_other() -> None:
    figure = plots.draw([summary(SIXTEEN, name="without"), summary(Law(0.5, 8), name="with")])
    names = figure.axes[0].get_legend_handles_labels()[1]
    assert {"answers without", "answers with"} <= set(names)
    assert sum(name.startswith("knee ") for name in names) == 2
    assert len(figure.axes) == 4  # with the card
    assert plots.png(figure).startswith(b"\x89PNG")
    assert re.match(r"<svg\b", plots.svg(figure))


def test_a_row_leaves_out_what_is_unknown() -> None:
    found = step(SIXTEEN, 4, summary(SIXTEEN).slo)
    row = results.row(replace(found, latency=None, first=None))
    assert not {"p95_s", "first_p50_s", "temperature_c", "retry_after_s"} & row.keys()
