"""The boards as Grafana gets them, and what their queries are made of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import promql_parser as promql

from dashboards.generate import BOARDS, HERE

Json = dict[str, Any]

# What Grafana puts there where nothing else is known.
_WINDOW, _ANY_WINDOW = "$__rate_interval", "5m"
# Functions that take what a counter did in a while.
GROWTH = {"rate", "increase"}


def boards() -> dict[str, Json]:
    return {name: json.loads((HERE / f"{name}.json").read_text("utf-8")) for name in BOARDS}


def panels(board: Json) -> Iterator[Json]:
    """All that shows data, those of collapsed rows too."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def queries(board: Json) -> Iterator[tuple[str, str]]:
    """Title of the panel, and query."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def parse(query: str) -> promql.Expr:
    """Raises ValueError where Prometheus would refuse it."""
    return promql.parse(query.replace(_WINDOW, _ANY_WINDOW))


@dataclass(frozen=True, slots=True)
class Selector:
    """`within`: the function that takes it, if any."""

    name: str
    matchers: dict[str, str]
    within: str


def selectors(node: promql.Expr, within: str = "") -> Iterator[Selector]:
    if isinstance(node, promql.VectorSelector):
        yield Selector(node.name or "", {m.name: m.value for m in node.matchers.matchers}, within)
    if isinstance(node, promql.Call):
        within = node.func.name
    for child in children(node):
        yield from selectors(child, within)


def nodes(node: promql.Expr) -> Iterator[promql.Expr]:
    yield node
    for child in children(node):
        yield from nodes(child)


def children(node: promql.Expr) -> list[promql.Expr]:
    if isinstance(node, promql.BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, promql.Call):
        return list(node.args)
    if isinstance(node, promql.MatrixSelector):
        return [node.vector_selector]
    inner = getattr(node, "expr", None)
    return [] if inner is None else [inner]


def grouping(node: promql.Expr) -> set[str]:
    """Labels that the query groups or joins by."""
    found: set[str] = set()
    for part in nodes(node):
        if isinstance(part, promql.AggregateExpr) and part.modifier:
            found |= set(part.modifier.labels)
        if isinstance(part, promql.BinaryExpr) and part.modifier and part.modifier.matching:
            found |= set(part.modifier.matching.labels)
    return found


def made(node: promql.Expr) -> set[str]:
    """Labels that the query makes itself."""
    found: set[str] = set()
    for part in nodes(node):
        if isinstance(part, promql.Call) and part.func.name == "label_replace":
            label = part.args[1]
            assert isinstance(label, promql.StringLiteral)
            found.add(label.val)
    return found
