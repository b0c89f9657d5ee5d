"""Fragments of text brought into the order a person reads them."""

from __future__ import annotations

import math

from hunyuan_ocr.documents.geometry import rectangle
from hunyuan_ocr.engines.reading_order import Fragment, arrange


def at(text: str, left: float, top: float, width: float, height: float = 20) -> Fragment:
    return Fragment(text, rectangle(left, top, left + width, top + height))


def texts(*fragments: Fragment, join_cells: bool = True) -> list[str]:
    return [line.text for line in arrange(fragments, join_cells=join_cells)]


def test_words_side_by_side_are_a_line() -> None:
    assert texts(at("world", 80, 12, 50), at("hello", 20, 10, 50), at("below", 20, 40, 50)) == [
        "hello world",
        "below",
    ]


def test_chinese_goes_on_without_a_space() -> None:
    assert texts(at("今天", 0, 0, 40), at("下雨", 42, 0, 40)) == ["今天下雨"]
    assert texts(at("名称", 0, 0, 40), at("单价", 90, 0, 40)) == ["名称 单价"]


def test_cells_of_a_row_stay_apart_where_asked() -> None:
    row = at("Apples", 0, 0, 60), at("12.50", 300, 0, 50)
    assert texts(*row) == ["Apples 12.50"]
    assert texts(*row, join_cells=False) == ["Apples", "12.50"]
    (line,) = arrange(row, join_cells=True)
    assert line.polygon == rectangle(0, 0, 350, 20)


def test_columns_are_read_one_by_one_below_their_heading() -> None:
    heading = at("Heading", 100, 0, 400)
    left = [at(f"L{n}", 0, 40 + 30 * n, 280) for n in range(5)]
    right = [at(f"R{n}", 320, 40 + 30 * n, 280) for n in range(5)]
    assert texts(*right, heading, *left) == [
        "Heading",
        *(f"{s}{n}" for s in "LR" for n in range(5)),
    ]


def test_a_table_is_read_row_by_row() -> None:
    cells = [
        at(f"{r}{c}", 200 * c, 30 * r, 40 + 30 * ((r + c) % 3)) for r in range(5) for c in (0, 1)
    ]
    assert texts(*cells) == [f"{row}0 {row}1" for row in range(5)]


def test_rows_of_a_skewed_page_stay_together() -> None:
    slope = math.tan(math.radians(4))

    def skewed(text: str, left: float, top: float, width: float) -> Fragment:
        corners = rectangle(left, top, left + width, top + 20)
        return Fragment(text, tuple((x, y + x * slope) for x, y in corners))

    fragments = [
        skewed(f"{side}{row}", left, 28 * row, 300)
        for row in range(3)
        for side, left in (("L", 0), ("R", 700))
    ]
    assert texts(*fragments) == ["L0 R0", "L1 R1", "L2 R2"]


def test_nothing_comes_from_nothing() -> None:
    assert texts() == []


def test_columns_of_glyphs_are_read_from_right_to_left() -> None:
    columns = (
        at("寒来暑往", 100, 10, 22, 100),
        at("天地玄黄", 140, 10, 22, 100),
        at("秋收冬藏", 100, 118, 22, 100),
        at("一", 20, 10, 20),
    )
    assert texts(*columns) == ["天地玄黄", "寒来暑往秋收冬藏", "一"]
    (_, line, _) = arrange(columns, join_cells=True)
    assert line.polygon == rectangle(100, 10, 122, 218)


def test_a_label_that_runs_down_leaves_the_page_in_its_order() -> None:
    label = at("版权所有", 0, 0, 20, 90)
    assert texts(label, at("first line", 60, 10, 90), at("second line", 60, 80, 90)) == [
        "first line",
        "版权所有",
        "second line",
    ]
