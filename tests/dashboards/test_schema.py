"""Boards fit Grafana's own types: what these do not know is lost on the way through them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins

from tests.dashboards.boards import Json, boards, panels

with warnings.catch_warnings():
    # It prefers its second schema, which Grafana 11 does not import.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.models.dashboard import Dashboard

ALL = boards()


def paths(value: Any, at: str = "") -> Iterator[str]:
    """Where there is a value, whatever it is."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, f"{at}.{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from paths(inner, f"{at}[{i}]")
    else:
        yield at


def lost(board: Json) -> set[str]:
    register_default_plugins()
    typed = json.loads(JSONEncoder().encode(Dashboard.from_json(deepcopy(board))))
    return set(paths(board)) - set(paths(typed))


@pytest.mark.parametrize("board", ALL.values(), ids=ALL)
def test_grafana_knows_every_field(board: Json) -> None:
    assert lost(board) == set()


@pytest.mark.parametrize("kind", ["stat", "timeseries", "heatmap", "state-timeline"])
def test_a_field_that_does_not_exist_is_found(kind: str) -> None:
    board = deepcopy(ALL["overview"])
    panel = next(p for p in panels(board) if p["type"] == kind)
    panel["options"]["colour"] = "green"
    panel["targets"][0]["query"] = "up"
    found = {path.rsplit(".", 1)[1] for path in lost(board)}
    assert found == {"colour", "query"}
