"""A board as a picture, drawn from its JSON and what Prometheus answers, without Grafana."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

Json = dict[str, Any]
# (labels, [(Unix seconds, value)]) of each series.
Series = tuple[Mapping[str, str], Sequence[tuple[float, float]]]
Ask = Callable[[str], Sequence[Series]]

_COLUMN_IN, _ROW_IN, _DPI = 0.72, 0.33, 80
_PAPER, _PANEL, _INK = "#111217", "#181b1f", "#ccccdc"
_COLOURS = {"text": _INK, "green": "#73bf69", "orange": "#ff9830", "red": "#f2495c"}
_UNITS: Mapping[str, tuple[float, str]] = {
    "percentunit": (100, " %"), "s": (1, " s"), "bytes": (1e-9, " GB"), "celsius": (1, " °C"),
    "watt": (1, " W"), "reqps": (1, "/s"),
}  # fmt: skip
_LEGEND_MAX = 6


def draw(board: Json, ask: Ask, path: Path) -> None:
    """Write `board` to `path`; panels of collapsed rows are left out."""
    shown = board["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in shown) + 2
    figure = plt.figure(figsize=(24 * _COLUMN_IN, height * _ROW_IN), dpi=_DPI, facecolor=_PAPER)
    figure.text(0.01, 1 - 1 / height, board["title"], color=_INK, fontsize=16, va="center")
    for panel in shown:
        x, y, w, h = (panel["gridPos"][key] for key in "xywh")
        left, top = x / 24, 1 - (y + 2) / height
        if panel["type"] == "row":
            figure.text(left + 0.01, top - 0.6 / height, panel["title"], color=_INK, fontsize=12)
            continue
        margin = (0.05, 0.28 * h) if panel["type"] != "stat" else (0.01, 0.3 * h)
        axes = figure.add_axes(
            (left + margin[0] * w / 8 / 3, top - (h - margin[1] * 0.8) / height,
             w / 24 - (margin[0] + 0.02) * w / 8 / 3, (h - margin[1] * 1.4) / height)
        )  # fmt: skip
        _panel(axes, panel, ask)
    figure.savefig(path, facecolor=_PAPER)
    plt.close(figure)


def _panel(axes: Axes, panel: Json, ask: Ask) -> None:
    axes.set_facecolor(_PANEL)
    axes.set_title(panel["title"], color=_INK, fontsize=8, loc="left")
    axes.tick_params(colors=_INK, labelsize=6)
    for spine in axes.spines.values():
        spine.set_color("#2c3235")
    found = [(target, series) for target in panel["targets"] for series in ask(target["expr"])]
    if panel["type"] == "stat":
        _stat(axes, panel, found)
    elif not any(values for _, (_, values) in found):
        axes.text(0.5, 0.5, "no data", color=_INK, ha="center", transform=axes.transAxes)
    elif panel["type"] == "heatmap":
        _heat(axes, [series for _, series in found])
    else:
        _lines(axes, panel, found)


def _stat(axes: Axes, panel: Json, found: Sequence[tuple[Json, Series]]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    values = [values[-1][1] for _, (_, values) in found if values]
    text, colour = defaults.get("noValue", "-"), _INK
    if values:
        steps = defaults["thresholds"]["steps"]
        reached = [s for s in steps if s["value"] is None or values[0] >= s["value"]]
        text, colour = _told(values[0], defaults["unit"]), _COLOURS.get(reached[-1]["color"], _INK)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.45, text, color=colour, fontsize=15, ha="center", va="center",
              transform=axes.transAxes)  # fmt: skip


def _lines(axes: Axes, panel: Json, found: Sequence[tuple[Json, Series]]) -> None:
    factor, suffix = _UNITS.get(panel["fieldConfig"]["defaults"].get("unit", ""), (1, ""))
    first_s = min(values[0][0] for _, (_, values) in found if values)
    for target, (labels, values) in found:
        times = [at - first_s for at, _ in values]
        drawn = [value * factor for _, value in values]
        draw = axes.step if panel["type"] == "state-timeline" else axes.plot
        draw(times, drawn, linewidth=1, label=_legend(target, labels))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} s")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}{suffix}")
    axes.grid(color="#2c3235", linewidth=0.5)
    if len(found) <= _LEGEND_MAX:
        axes.legend(fontsize=5, loc="upper left", frameon=False, labelcolor=_INK)


def _heat(axes: Axes, series: Sequence[Series]) -> None:
    """`le` buckets from below to above, each less the one below it."""
    rows = sorted(series, key=lambda one: float(one[0].get("le", "inf")))
    times = sorted({at for _, values in rows for at, _ in values})
    below, table = dict.fromkeys(times, 0.0), []
    for _, values in rows:
        now = dict(values)
        table.append([max(0.0, now.get(at, 0.0) - below[at]) for at in times])
        below = {at: now.get(at, 0.0) for at in times}
    axes.imshow(table, aspect="auto", origin="lower", cmap="Oranges")
    axes.set_yticks(range(len(rows)), [labels.get("le", "") for labels, _ in rows])
    axes.set_xticks([])


def _legend(target: Json, labels: Mapping[str, str]) -> str:
    text = str(target.get("legendFormat") or "")
    for name, value in labels.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


def _told(value: float, unit: str) -> str:
    factor, suffix = _UNITS.get(unit, (1, ""))
    return f"{value * factor:.3g}{suffix}"
