"""One HTML file that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from loadtest.advice import sentences, values
from loadtest.results import Summary, row

_COLUMNS = {
    "kind": "load", "level": "level", "answered_per_s": "answers/s", "goodput_per_s": "in time/s",
    "p50_s": "p50 s", "p95_s": "p95 s", "p99_s": "p99 s", "first_p50_s": "first p50 s",
    "in_time": "in time", "late": "late", "refused": "refused", "failed": "failed",
    "broken": "broken", "unreachable": "unreachable", "timed_out": "timed out", "unsent": "unsent",
    "held": "held", "temperature_c": "°C", "memory_used_gb": "GB", "utilization": "GPU busy",
}  # fmt: skip
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto }
th, td { padding: .2rem .5rem; text-align: right; border-bottom: 1px solid #ddd;
  white-space: nowrap }
pre { background: #f4f4f4; padding: .8rem; overflow-x: auto }
svg { max-width: 100%; height: auto }
dt { float: left; clear: left; min-width: 8rem; color: #666 }
"""


def html(summaries: Sequence[Summary], svg: str, profile: str, pods: int = 1) -> str:
    """A page of all summaries; `svg` is the curves as an element, or empty."""
    sections = "".join(_section(summary, profile, pods) for summary in summaries)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Load test</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>Load test</h1>{svg}{sections}</body></html>\n"
    )


def _section(summary: Summary, profile: str, pods: int) -> str:
    about = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in summary.about.items()
    )
    told = "".join(f"<li>{escape(line)}</li>" for line in sentences(summary))
    return (
        f"<h2>{escape(summary.name or 'Result')}</h2><ul>{told}</ul>{_table(summary)}"
        f"<h3>Values for the chart</h3><pre>{escape(values(summary, profile, pods))}</pre>"
        f"<h3>Measured</h3><dl>{about}</dl>"
    )


def _table(summary: Summary) -> str:
    found = summary.findings
    rows = [row(step) for step in (*sorted(found.steps, key=lambda s: s.level), *found.open_steps)]
    used = [name for name in _COLUMNS if any(name in cells for cells in rows)]
    head = "".join(f"<th>{escape(_COLUMNS[name])}</th>" for name in used)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(cells.get(name)))}</td>" for name in used) + "</tr>"
        for cells in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)
