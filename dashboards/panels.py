"""Grafana's JSON: panels, rows and boards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
TAG = "hunyuan-ocr"
GREEN, AMBER, RED, BLUE, GREY = "green", "orange", "red", "blue", "text"
_METRIC = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{")

# An expression and the legend of its series.
Target = tuple[str, str]
# From this value on, this colour; the first one's value is None.
Steps = Sequence[tuple[float | None, str]]


@dataclass(frozen=True, slots=True)
class Panel:
    """`width` in the board's 24 columns, `height` in rows of 30 px."""

    title: str
    text: str
    unit: str
    targets: tuple[Target, ...]
    kind: str
    width: int
    height: int
    defaults: Json
    options: Json
    query: Json

    def json(self, number: int, x: int, y: int) -> Json:
        names = sorted({name for query, _ in self.targets for name in _METRIC.findall(query)})
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": f"{self.text}\n\nFrom {', '.join(f'`{name}`' for name in names)}.",
            "datasource": DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "fieldConfig": {"defaults": self.defaults | {"unit": self.unit}, "overrides": []},
            "options": self.options,
            "targets": [
                {
                    "refId": chr(ord("A") + i),
                    "datasource": DATASOURCE,
                    "expr": query,
                    "legendFormat": legend,
                    **self.query,
                }
                for i, (query, legend) in enumerate(self.targets)
            ],
        }


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


def tile(
    title: str,
    text: str,
    unit: str,
    query: str,
    steps: Steps = ((None, GREY),),
    *,
    width: int = 3,
    empty: str = "no traffic",
    legend: str = "",
) -> Panel:
    """The newest value, large, with what it was behind it. `empty` stands where there is none."""
    return Panel(
        title,
        text,
        unit,
        ((query, legend),),
        "stat",
        width,
        4,
        {"noValue": empty, "color": {"mode": "thresholds"}, "thresholds": _thresholds(steps)},
        {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "area",
            "textMode": "auto",
        },
        {"range": True},
    )


def lines(
    title: str,
    text: str,
    unit: str,
    *targets: Target,
    width: int = 8,
    stacked: bool = False,
    limits: Steps = (),
    top: float | None = None,
    exemplars: bool = False,
) -> Panel:
    """Series over time; `limits` are drawn as lines, `top` is the axis's end."""
    custom: Json = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 30 if stacked else 5,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }
    defaults: Json = {"custom": custom, "color": {"mode": "palette-classic"}, "min": 0}
    if limits:
        custom["thresholdsStyle"] = {"mode": "dashed"}
        defaults["thresholds"] = _thresholds(((None, "transparent"), *limits))
    if top is not None:
        defaults["max"] = top
    return Panel(
        title,
        text,
        unit,
        targets,
        "timeseries",
        width,
        8,
        defaults,
        {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        {"range": True, "exemplar": exemplars},
    )


def heat(title: str, text: str, unit: str, query: str, *, width: int = 8) -> Panel:
    """How many fell into each bucket of a histogram; `query` is by `le`."""
    return Panel(
        title,
        text,
        unit,
        ((query, "{{le}}"),),
        "heatmap",
        width,
        8,
        {},
        {
            "calculate": False,
            "color": {"mode": "scheme", "scheme": "Oranges", "exponent": 0.5, "steps": 64},
            "cellGap": 1,
            "yAxis": {"axisPlacement": "left", "unit": unit},
            "tooltip": {"mode": "single", "showColorScale": True},
            "legend": {"show": True},
        },
        {"range": True, "format": "heatmap"},
    )


def states(
    title: str, text: str, query: str, legend: str, names: Sequence[tuple[str, str]], *, width: int
) -> Panel:
    """Bands over time of a series whose values are 0, 1, …: the name and colour of each."""
    shown = {
        str(value): {"text": name, "color": color, "index": value}
        for value, (name, color) in enumerate(names)
    }
    return Panel(
        title,
        text,
        "short",
        ((query, legend),),
        "state-timeline",
        width,
        8,
        {
            "mappings": [{"type": "value", "options": shown}],
            "color": {"mode": "thresholds"},
            "thresholds": _thresholds([(None, names[0][1])]),
        },
        {
            "mergeValues": True,
            "showValue": "auto",
            "rowHeight": 0.8,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "single"},
        },
        {"range": True},
    )


def _thresholds(steps: Steps) -> Json:
    return {
        "mode": "absolute",
        "steps": [{"value": value, "color": color} for value, color in steps],
    }


def _variable(name: str, labelled: str, matchers: Sequence[str], *, hidden: bool = False) -> Json:
    """The values of a label of the service's series, of those that the ones before leave."""
    selector = f"hunyuan_ocr_build_info{{{','.join(matchers)}}}"
    return {
        "name": name,
        "label": labelled,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": f"label_values({selector}, {name})", "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "current": {"text": ["All"], "value": ["$__all"]},
        "hide": 2 if hidden else 0,
    }


def _variables() -> list[Json]:
    source = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
    }
    names = ("namespace", "job", "instance", "pod")
    chosen = [f'{name}=~"${name}"' for name in names]
    return [
        source,
        *(
            _variable(name, name.capitalize(), chosen[:i], hidden=name == "pod")
            for i, name in enumerate(names)
        ),
    ]


def board(uid: str, title: str, text: str, rows: Sequence[Row]) -> Json:
    """A board; its panels go from left to right, as many as fit."""
    panels: list[Json] = []
    y = number = 0
    for row in rows:
        number += 1
        head = {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": row.collapsed,
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        }
        placed, y = _placed(row.panels, number + 1, y + 1)
        number += len(placed)
        # Grafana keeps the panels of a collapsed row inside of it.
        panels += [head | {"panels": placed}] if row.collapsed else [head | {"panels": []}, *placed]
    return {
        "uid": uid,
        "title": title,
        "description": text,
        "tags": [TAG],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "links": [
            {
                "type": "dashboards",
                "title": "HunyuanOCR",
                "tags": [TAG],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "panels": panels,
    }


def _placed(panels: Sequence[Panel], number: int, y: int) -> tuple[list[Json], int]:
    placed: list[Json] = []
    x = height = 0
    for panel in panels:
        if x + panel.width > COLUMNS:
            x, y, height = 0, y + height, 0
        placed.append(panel.json(number + len(placed), x, y))
        x, height = x + panel.width, max(height, panel.height)
    return placed, y + height
