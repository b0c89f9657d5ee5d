"""Every answer format is read; nothing a model may say raises or takes long."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hunyuan_ocr.documents.geometry import Polygon, rectangle
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.tasks.parse import ParsedAnswer, ParsedLine, parse
from tests.timing import is_linear

BOX = rectangle(1, 2, 300, 40)
QUAD: Polygon = ((1, 2), (300, 4), (299, 44), (2, 40))
AB = (ParsedLine("发票 (A)", BOX), ParsedLine("b, 1", rectangle(5, 6, 7, 8)))


@pytest.mark.parametrize(
    "raw",
    [
        "发票 (A)(1,2),(300,40)b, 1(5,6),(7,8)",
        "发票 (A)(1,2),(300,40)\nb, 1(5, 6), (7, 8)",
        "发票 (A)(300,40),(1,2)b, 1(5,6),(7,8)(9,9),(10,10)",
        "<ref>发票 (A)</ref><quad>(1,2),(300,40)</quad><ref>b, 1</ref><quad>(5,6),(7,8)</quad>",
        "<quad><pos_1><pos_2><pos_300><pos_40></quad><ref>发票 (A)</ref>"
        "<quad><pos_5><pos_6><pos_7><pos_8></quad><ref>b, 1</ref>",
        '[{"box": [1, 2, 300, 40], "text": "发票 (A)"}, {"box": [5,6,7,8], "text": "b, 1"}]',
        '[{"bbox": "(1,2),(300,40)", "text": "发票 (A)"},{"bbox": [[5,6],[7,8]], "text": "b, 1"}]',
        '```json\n[{"box":[1,2,300,40],"text":"发票 (A)"},\n{"box":[5,6,7,8],"text":"b, 1"}]\n```',
        '{"lines": [{"box": [1,2,300,40], "text": "发票 (A)"},{"box":[5,6,7,8],"text":"b, 1"}]}',
        # cut off at the token limit
        "发票 (A)(1,2),(300,40)b, 1(5,6),(7,8)(9,9),(1",
        "<ref>发票 (A)</ref><quad>(1,2),(300,40)</quad><ref>b, 1</ref><quad>(5,6),(7,8)</quad><re",
        '[{"box": [1,2,300,40], "text": "发票 (A)"},{"box":[5,6,7,8],"text":"b, 1"},{"box":[1,2,3',
        '{"lines": [{"box": [1,2,300,40], "text": "发票 (A)"},{"box":[5,6,7,8],"text":"b, 1"},{"bo',
    ],
)
def test_spotting_formats(raw: str) -> None:
    answer = parse(Task.SPOTTING, raw)
    assert answer.lines == AB
    assert answer.text == "发票 (A)\nb, 1"


def test_four_points_are_a_quadrilateral_and_points_outside_are_moved_in() -> None:
    answer = parse(Task.SPOTTING, "a(1,2),(300,4),(299,44),(2,40)b(5,6),(1003,8)")
    assert answer.lines == (ParsedLine("a", QUAD), ParsedLine("b", rectangle(5, 6, 1000, 8)))


def test_points_in_a_text_stay_in_it() -> None:
    assert parse(Task.SPOTTING, "f(1,2)(3,4),(5,6)P(7,8),(3,4),(5,6)").lines == (
        ParsedLine("f(1,2)", rectangle(3, 4, 5, 6)),
        ParsedLine("P(7,8),", rectangle(3, 4, 5, 6)),
    )


def test_json_with_raw_latex_and_a_broken_item() -> None:
    raw = (
        r'[{"box":[1,2,3,4],"text":"\frac{a}{b} \\alpha"},{"box":[1,2,3,4],"text":"he "x" "},'
        r'{"box":[5,6,7,8],"text":"\ud800 \ud83d\ude00"}]'
    )
    texts = [line.text for line in parse(Task.SPOTTING, raw).lines]
    assert texts == [r"\frac{a}{b} \alpha", "\ufffd \U0001f600"]


def test_a_page_that_shows_json_keeps_its_text() -> None:
    raw = '{(88,100),(95,120)"box": [1, 2],(100,130),(400,150)}(88,160),(95,180)'
    lines = parse(Task.SPOTTING, raw).lines
    assert [line.text for line in lines] == ["{", '"box": [1, 2],', "}"]
    cut = '[{"box": [1, 2, 3'
    assert parse(Task.LAYOUT, cut).text == cut


LAYOUT = (
    ParsedLine("题", QUAD, "title"),
    ParsedLine("一 (二)", QUAD, "paragraph"),
    ParsedLine("", QUAD, "figure"),
)
_Q = "(1,2),(300,4),(299,44),(2,40)"


@pytest.mark.parametrize(
    "raw",
    [
        json.dumps(
            [
                {"layout_type": "title", "bbox": _Q, "text": "题"},
                {"layout_type": "paragraph", "bbox": _Q, "text": "一 (二)"},
                {"layout_type": "figure", "bbox": _Q},
            ]
        ),
        f"题<hy-meta><layout>title</layout><poly>{_Q}</poly></hy-meta>\n"
        f"一 (二)<hy-meta><layout>paragraph</layout><quad>{_Q}</quad></hy-meta>"
        f"<hy-meta><layout>figure</layout><quad>{_Q}</quad></hy-meta>",
    ],
)
def test_layout_formats(raw: str) -> None:
    answer = parse(Task.LAYOUT, raw)
    assert answer.lines == LAYOUT
    assert answer.text == "题\n\n一 (二)"


@pytest.mark.parametrize(
    "raw", ["没有文字", "没有文字。", "图中没有文字。", "图片中没有任何文字", "  "]
)
def test_no_text(raw: str) -> None:
    for task in set(Task) - {Task.EXTRACT}:
        assert parse(task, raw) == ParsedAnswer("")


def test_a_page_that_speaks_of_no_text_keeps_it() -> None:
    assert parse(Task.TEXT, "没有文字的书").text == "没有文字的书"
    assert parse(Task.SPOTTING, "没有文字(1,2),(300,40)").lines == (ParsedLine("没有文字", BOX),)


def test_figure_boxes_leave_the_text() -> None:
    answer = parse(
        Task.MARKDOWN,
        "# T\n\n数据来源(39,337),(512,900)\n(147,90),(925,415), (10,20),(500,600)\n\nend",
    )
    assert answer.text == "# T\n\n数据来源\n\nend"
    assert answer.figure_boxes == (
        rectangle(39, 337, 512, 900),
        rectangle(147, 90, 925, 415),
        rectangle(10, 20, 500, 600),
    )
    assert not answer.only_figures


@pytest.mark.parametrize(
    "raw",
    [
        "点 A(1,2),(3,4)",  # too small for a figure
        "$$\nx\n(100,100),(300,300)\n$$",
        "<table><tr><td>(100,100),(300,300)",
        "from (100,100),(300,300) on",
    ],
)
def test_points_that_a_page_says_stay(raw: str) -> None:
    assert parse(Task.MARKDOWN, raw) == ParsedAnswer(raw)


def test_only_figures() -> None:
    assert parse(Task.MARKDOWN, "(39,337),(512,900)\n(39,37),(512,300)").only_figures
    assert not parse(Task.MARKDOWN, "").only_figures


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ('{"a": "1", "b": null}', {"a": "1", "b": None}),
        ('```json\n{"a": "1"}\n```', {"a": "1"}),
        ('Here [as asked]: {"a": {"b": [1]}} Done.', {"a": {"b": [1]}}),
        ('[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}]),
        ('{"a": "two\nlines"}', {"a": "two\nlines"}),
        ("{}", {}),
        ('{"a": {"x": 1}, "b": "cut', None),
        ('{"a": NaN}', None),
        ('{"a": 1e999}', None),
        ('{"a": ' + "9" * 5000 + "}", None),
        ("total: 5", None),
        ("", None),
    ],
)
def test_extract(raw: str, value: object) -> None:
    assert parse(Task.EXTRACT, raw).value == value


TEXTS = (
    st.text(alphabet='ab(),.0129中 <>{}"\\[]', min_size=1, max_size=12).map(str.strip).filter(bool)
)
BOXES = st.builds(
    lambda x, y, w, h: rectangle(x, y, min(x + w, 1000), min(y + h, 1000)),
    *[st.integers(0, 1000)] * 4,
)
LINES = st.lists(st.builds(ParsedLine, TEXTS, BOXES), min_size=1, max_size=6).map(tuple)


def _corners(polygon: Polygon) -> str:
    (x1, y1), _, (x2, y2), _ = polygon
    return f"({x1:.0f},{y1:.0f}),({x2:.0f},{y2:.0f})"


def _plain(line: ParsedLine) -> bool:
    """No run of points in the text, and none that its place would continue or that continues it."""
    text = line.text
    return not text.startswith((",", "[", "{")) and not re.search(r"\(\d+, ?\d+\),", text)


@settings(deadline=None)
@given(LINES.filter(lambda lines: all(map(_plain, lines))))
def test_compact_spotting_round_trip(lines: tuple[ParsedLine, ...]) -> None:
    raw = "".join(line.text + _corners(line.polygon) for line in lines)
    assert parse(Task.SPOTTING, raw).lines == lines


@settings(deadline=None)
@given(LINES)
def test_tagged_spotting_round_trip(lines: tuple[ParsedLine, ...]) -> None:
    raw = "".join(f"<ref>{line.text}</ref><quad>{_corners(line.polygon)}</quad>" for line in lines)
    assert parse(Task.SPOTTING, raw).lines == lines


@settings(deadline=None)
@given(LINES)
def test_json_spotting_round_trip(lines: tuple[ParsedLine, ...]) -> None:
    items = [{"box": [*line.polygon[0], *line.polygon[2]], "text": line.text} for line in lines]
    assert parse(Task.SPOTTING, json.dumps(items, ensure_ascii=False)).lines == lines


REAL = [
    "发票(1,2),(300,40)b(5,6),(7,8)",
    "<ref>a</ref><quad>(1,2),(300,40)</quad>",
    "<quad><pos_1><pos_2><pos_3><pos_4></quad><ref>t</ref>",
    '[{"box": [1, 2, 300, 40], "text": "发票 \\u4e00"}, {"bbox": "(1,2),(3,4)", "text": 5}]',
    '[{"layout_type": "title", "bbox": "(1,2),(3,4),(5,6),(7,8)", "text": null}]',
    "题<hy-meta><layout>title</layout><poly>(1,2),(3,4),(5,6),(7,8)</poly></hy-meta>",
    "a(39,337),(512,900)\n$$x$$\n<table><tr></tr></table>",
    '```json\n{"a": ["b", {"c": 1e5}]}\n```',
]
MUTATED = st.lists(
    st.tuples(st.sampled_from(REAL), st.integers(0, 90), st.integers(0, 90), st.text(max_size=2)),
    min_size=1,
    max_size=4,
).map(lambda cuts: "".join(raw[:a] + extra + raw[b:] for raw, a, b, extra in cuts))


@settings(deadline=None)
@given(st.sampled_from(list(Task)), st.text() | MUTATED)
def test_no_answer_raises(task: Task, raw: str) -> None:
    answer = parse(task, raw)
    for line in answer.lines:
        assert line.text or line.label
        assert len(line.polygon) >= 3
        assert all(0 <= x <= 1000 and 0 <= y <= 1000 for x, y in line.polygon)
    json.dumps(answer.value, allow_nan=False).encode()


HOSTILE = [
    "(1,2),", "(1,2),(3,4)", "<ref>", "<quad>", '{"a":', '[{"a":[', '{"a":[{},', '{"box"', "\\",
    "$$", '{"box":[1,2,3,4],"text":"a"},', "(1,2", "{ ", '[[["box"[', '{"box":"\\u', "图", "1",
    "<hy-meta><poly>", "(100,100),(300,300) ", '{"box":[1,1,9,9],"text":"a\\x","k":{"j":', '"',
    "(", "中(1,2),(3,4)",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_answers_take_linear_time(piece: str) -> None:
    for prefix in ("", '[{"box"', "<hy-meta><quad>"):
        for task in (Task.SPOTTING, Task.MARKDOWN, Task.EXTRACT):

            def read(size: int, prefix: str = prefix, task: Task = task) -> None:
                parse(task, (prefix + piece * (size // len(piece) + 1))[:size])

            assert is_linear(read, 100_000), (prefix, task)
