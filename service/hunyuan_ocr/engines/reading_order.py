"""From fragments of text as a detector finds them to lines in the order a person reads them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from hunyuan_ocr.documents.geometry import Point, Polygon
from hunyuan_ocr.engines.base import Line

# Text this much higher than wide is read from top to bottom.
RUNS_DOWN = 2.0
# All lengths below are in heights of the text.
_TOUCHING = 0.4  # closer than this, Chinese text goes on without a space
_CELL_GAP = 2.5  # wider than this, fragments are cells of a row, not words of a line
_GUTTER = 1.0  # columns are at least this far apart
_COLUMN_LINES_MIN = 5
_COLUMN_WIDTH_MIN = 8.0
_COLUMN_FILL = 0.6  # lines of running text fill their column; cells of a table do not
_CROSSING_SHARE = 0.25  # headings across both columns


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of text and its quad in pixels, clockwise from the upper left corner."""

    text: str
    polygon: Polygon


@dataclass(frozen=True, slots=True)
class _Placed:
    """A fragment on the page turned level; lengths in pixels."""

    fragment: Fragment
    left: float
    right: float
    middle: float
    height: float

    @property
    def width(self) -> float:
        return self.right - self.left


def arrange(fragments: Sequence[Fragment], *, join_cells: bool) -> list[Line]:
    """Lines in reading order: columns from left to right, each from top to bottom.

    Words side by side are one line; so are the cells of a row if `join_cells`. Where most text
    runs down the page, as Chinese may, its columns are the lines and the first is the rightmost.
    """
    if not _runs_down(fragments):
        return _arrange(fragments, join_cells=join_cells)
    lying = [Fragment(each.text, _laid_down(each.polygon)) for each in fragments]
    lines = _arrange(lying, join_cells=join_cells)
    return [replace(line, polygon=_stood_up(line.polygon)) for line in lines]


def _runs_down(fragments: Sequence[Fragment]) -> bool:
    """Whether more characters stand below each other than side by side."""
    down = across = 0
    for fragment in fragments:
        upper_left, upper_right, _, lower_left = fragment.polygon
        width, height = math.dist(upper_left, upper_right), math.dist(upper_left, lower_left)
        if height >= RUNS_DOWN * width:
            down += len(fragment.text)
        else:
            across += len(fragment.text)
    return down > across


def _laid_down(polygon: Polygon) -> Polygon:
    """A quad as it lies once the page is turned by 90 degrees counterclockwise."""
    return tuple((y, -x) for x, y in (*polygon[1:], polygon[0]))


def _stood_up(polygon: Polygon) -> Polygon:
    """The inverse of `_laid_down`."""
    return tuple((-y, x) for x, y in (polygon[-1], *polygon[:-1]))


def _arrange(fragments: Sequence[Fragment], *, join_cells: bool) -> list[Line]:
    placed = _level(fragments)
    reach = math.inf if join_cells else _CELL_GAP
    return [_line(run) for row in _rows_in_order(placed) for run in _runs(row, reach)]


def _level(fragments: Sequence[Fragment]) -> list[_Placed]:
    """Place fragments as on a page turned so that its longer lines are level."""
    angle = _slope(fragments)
    cos, sin = math.cos(-angle), math.sin(-angle)

    def turn(point: Point) -> Point:
        return point[0] * cos - point[1] * sin, point[0] * sin + point[1] * cos

    placed = []
    for fragment in fragments:
        xs, ys = zip(*map(turn, fragment.polygon), strict=True)
        height = max(1.0, math.dist(fragment.polygon[0], fragment.polygon[3]))
        placed.append(_Placed(fragment, min(xs), max(xs), sum(ys) / 4, height))
    return placed


def _slope(fragments: Sequence[Fragment]) -> float:
    """The angle of the text in radians; short fragments say too little about it."""
    angles = []
    for fragment in fragments:
        (left, top), (right, top_right), _, lower_left = fragment.polygon
        height = math.dist((left, top), lower_left)
        if right - left > 4 * height:
            angles.append(math.atan2(top_right - top, right - left))
    return median(angles) if angles else 0.0


def _rows_in_order(placed: list[_Placed]) -> list[list[_Placed]]:
    gutter = _find_gutter(placed)
    if gutter is None:
        return _rows(placed)
    rows: list[list[_Placed]] = []
    band: list[_Placed] = []
    for item in sorted(placed, key=lambda item: item.middle):
        if item.left < gutter < item.right:
            rows += [*_columns(band, gutter), [item]]
            band = []
        else:
            band.append(item)
    return rows + _columns(band, gutter)


def _columns(band: list[_Placed], gutter: float) -> list[list[_Placed]]:
    left = [item for item in band if item.right <= gutter]
    right = [item for item in band if item.right > gutter]
    return [row for side in (left, right) if side for row in _rows_in_order(side)]


def _find_gutter(placed: list[_Placed]) -> float | None:
    """The x of the empty strip between two columns of running text, if there is one."""
    if len(placed) < 2 * _COLUMN_LINES_MIN:
        return None
    strip = _GUTTER * median(item.height for item in placed)
    best: tuple[int, float] | None = None
    for x in sorted({item.left for item in placed}):
        gutter = x - strip / 2
        crossing = sum(item.left < x and item.right > x - strip for item in placed)
        if crossing > _CROSSING_SHARE * len(placed) or not _splits(placed, gutter):
            continue
        if best is None or crossing < best[0]:
            best = crossing, gutter
    return None if best is None else best[1]


def _splits(placed: list[_Placed], gutter: float) -> bool:
    """Whether both sides of `gutter` look like columns of running text side by side."""
    sides = (
        [item for item in placed if item.right <= gutter],
        [item for item in placed if item.left >= gutter],
    )
    for side in sides:
        if len(side) < _COLUMN_LINES_MIN:
            return False
        width = max(item.right for item in side) - min(item.left for item in side)
        typical = median(item.width for item in side)
        if typical < max(_COLUMN_FILL * width, _COLUMN_WIDTH_MIN * side[0].height):
            return False
    tops = [min(item.middle for item in side) for side in sides]
    ends = [max(item.middle for item in side) for side in sides]
    return min(ends) - max(tops) > 0.5 * (max(ends) - min(tops))


def _rows(placed: Iterable[_Placed]) -> list[list[_Placed]]:
    """Rows from top to bottom; a fragment joins a row whose middle its own height covers."""
    rows: list[list[_Placed]] = []
    for item in sorted(placed, key=lambda item: item.middle):
        last = rows[-1] if rows else None
        if last is not None and _same_row(last, item):
            last.append(item)
        else:
            rows.append([item])
    return [sorted(row, key=lambda item: item.left) for row in rows]


def _same_row(row: list[_Placed], item: _Placed) -> bool:
    near = min(row, key=lambda other: abs(other.left - item.left))
    return abs(near.middle - item.middle) < 0.5 * min(near.height, item.height)


def _runs(row: list[_Placed], reach: float) -> list[list[_Placed]]:
    """Cut a row where the gap is wider than `reach` heights of its text."""
    runs = [[row[0]]]
    for left, right in pairwise(row):
        if right.left - left.right > reach * min(left.height, right.height):
            runs.append([])
        runs[-1].append(right)
    return runs


def _line(run: list[_Placed]) -> Line:
    text = run[0].fragment.text
    for left, right in pairwise(run):
        text += _separator(left, right) + right.fragment.text
    first, last = run[0].fragment.polygon, run[-1].fragment.polygon
    return Line(text, (first[0], last[1], last[2], first[3]))


def _separator(left: _Placed, right: _Placed) -> str:
    near = right.left - left.right < _TOUCHING * min(left.height, right.height)
    wide = _is_wide(left.fragment.text[-1]) or _is_wide(right.fragment.text[0])
    return "" if near and wide else " "


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in {"W", "F"}
