"""From the model's answer to text, placed lines and values.

The formats are those of Tencent's published prompts and of the scorers it trains with:

- spotting: `text(x1,y1),(x2,y2)text(x1,y1),(x2,y2)…`; `<ref>text</ref><quad>(…),(…)</quad>`;
  `<quad><pos_x1><pos_y1><pos_x2><pos_y2></quad><ref>text</ref>`;
  `[{"box": [x1,y1,x2,y2], "text": "…"}]`, also `bbox`, also as a string of points;
- layout: `[{"layout_type": "…", "bbox": "(x,y),(x,y),(x,y),(x,y)", "text": "…"}]`;
  `text<hy-meta><layout>label</layout><quad>…</quad></hy-meta>`, also `poly`;
- markdown: boxes of figures `(x1,y1),(x2,y2)` at the end of a line;
- "没有文字" (there is no text) for a page without any.

All coordinates are per mille of the page's width and height. Nothing here raises, and the time
is linear in the length of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hunyuan_ocr.documents.geometry import Polygon, rectangle
from hunyuan_ocr.tasks import answer_json
from hunyuan_ocr.tasks.catalogue import Task

SCALE = 1000.0
# A box at the end of a markdown line that is smaller than this, in per mille of the page, is
# something the page says, such as two points of an exercise.
MIN_FIGURE = 10

_POINT = r"\(\d{1,4},[ ]?\d{1,4}\)"
_POINTS = re.compile(rf"{_POINT}(?:,[ ]?{_POINT})+")
_BOX = re.compile(rf"{_POINT},[ ]?{_POINT}")
_NUMBER = re.compile(r"\d{1,4}")
_TAG = re.compile(r"<(/?(?:ref|quad|poly|layout|hy-meta))>")
_NO_TEXT = re.compile(
    r"(?:该|这张|本)?(?:图|图片|图像|画面)?[中里上]?并?(?:没有|无)(?:任何|可识别的)?文字"
)
# What the token limit leaves of a tag or of the place of a line.
_CUT_TAG = re.compile(r"</?[a-z-]{0,7}$")
_CUT_PLACE = re.compile(
    r"\(\d{0,4}(?:,[ ]?\d{0,4}(?:\)(?:,[ ]?(?:\(\d{0,4}(?:,[ ]?\d{0,4})?)?)?)?)?$"
)


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """A line or region; `polygon` in per mille (0 to 1000) of the page, per axis.

    `label` is the kind of a layout region; `text` is empty for regions the model did not read.
    """

    text: str
    polygon: Polygon
    label: str | None = None


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """An answer taken apart; `value` is the JSON of an extract, None where it is broken."""

    text: str
    lines: tuple[ParsedLine, ...] = ()
    value: object | None = None
    figure_boxes: tuple[Polygon, ...] = ()

    @property
    def only_figures(self) -> bool:
        """Whether the model placed figures and read nothing."""
        return bool(self.figure_boxes) and not self.text.strip()


def parse(task: Task, raw: str) -> ParsedAnswer:
    """Take an answer apart; what fits no format of the task is its text as it stands."""
    raw = raw.strip()
    if task is Task.EXTRACT:
        return ParsedAnswer(raw, value=answer_json.value(raw))
    if _NO_TEXT.fullmatch(raw.rstrip("。.!！")):
        return ParsedAnswer("")
    if task in (Task.SPOTTING, Task.LAYOUT):
        return _parse_placed(raw)
    if task is Task.MARKDOWN and "<hy-meta>" in raw:
        return _parse_tagged(raw)
    if task in (Task.MARKDOWN, Task.TRANSLATE):
        return _parse_markdown(raw)
    return ParsedAnswer(raw)


def _parse_placed(raw: str) -> ParsedAnswer:
    looks_like_json = raw.startswith(("[", "{", "```")) and ('"box"' in raw or '"bbox"' in raw)
    # A page that shows JSON looks like it, too.
    if looks_like_json and (lines := tuple(_json_lines(raw))):
        return _placed(lines)
    if "<quad>" in raw or "<poly>" in raw:
        return _parse_tagged(raw)
    return _parse_compact(raw)


def _placed(lines: tuple[ParsedLine, ...], rest: str = "") -> ParsedAnswer:
    """Lines as an answer; regions of a layout are paragraphs, lines of text are lines."""
    gap = "\n\n" if any(line.label for line in lines) else "\n"
    texts = [line.text for line in lines] + [rest]
    return ParsedAnswer(gap.join(text for text in texts if text), lines)


def _parse_compact(raw: str) -> ParsedAnswer:
    """`text(x1,y1),(x2,y2)…`: the text of a box is all that stands before it.

    Of a run of points the last two are the box and those before belong to the text, except
    that four are a quadrilateral. Boxes without text are left out.
    """
    lines, end = [], 0
    for match in _POINTS.finditer(raw):
        run, text = match[0], raw[end : match.start()]
        end, points = match.end(), _points(run)
        if len(points) == 3 or len(points) > 4:
            head = _head(run, len(points) - 2)
            text, points = text + head, points[-2:]
        text = text.strip()
        if text and (box := _polygon(points)):
            lines.append(ParsedLine(text, box))
    rest = raw[end:].strip()
    return _placed(tuple(lines), _CUT_PLACE.sub("", rest) if lines else rest)


def _head(run: str, count: int) -> str:
    """The first `count` points of a run as they are written, with the comma behind them."""
    return run[: [match.end() for match in re.finditer(r"\),", run)][count - 1]]


def _parse_tagged(raw: str) -> ParsedAnswer:
    """The tag formats in one pass: an item is whole once both its text and its place are."""
    lines: list[ParsedLine] = []
    item: dict[str, str] = {}
    outside, meta, tag = "", False, ""
    for index, piece in enumerate(_TAG.split(raw)):
        if index % 2 == 0:
            outside += "" if meta or tag else piece
            if tag:
                item[tag] = piece
            continue
        meta = piece == "hy-meta" or (meta and piece != "/hy-meta")
        tag = "" if piece.startswith("/") or piece == "hy-meta" else piece
        whole = piece == "/hy-meta" or (
            piece in ("/ref", "/quad") and not meta and "ref" in item and "quad" in item
        )
        if whole:
            line = _tagged_line(item, outside)
            if line:
                lines.append(line)
                outside = "" if piece == "/hy-meta" else outside
            item = {}
    rest = outside.strip()
    return _placed(tuple(lines), _CUT_TAG.sub("", rest) if lines else rest)


def _tagged_line(item: dict[str, str], outside: str) -> ParsedLine | None:
    """A line from the contents of its tags; in the hy-meta form its text stands `outside`."""
    text, label = item.get("ref", outside).strip(), item.get("layout", "").strip() or None
    polygon = _polygon(_points(item.get("quad") or item.get("poly") or ""))
    return ParsedLine(text, polygon, label) if polygon and (text or label) else None


def _json_lines(raw: str) -> Iterator[ParsedLine]:
    for found in answer_json.objects(raw):
        wrapped = [entry for entry in found.values() if isinstance(entry, list)]
        items = [found] if "box" in found or "bbox" in found else [i for w in wrapped for i in w]
        for item in items:
            if isinstance(item, dict) and (line := _json_line(item)):
                yield line


def _json_line(item: dict[str, object]) -> ParsedLine | None:
    text, label = item.get("text"), item.get("layout_type")
    text = text.strip() if isinstance(text, str) else "" if text is None else str(text)
    label = label.strip() or None if isinstance(label, str) else None
    box = item.get("box", item.get("bbox"))
    if isinstance(box, list):
        numbers = _numbers(box)
        points = list(zip(numbers[::2], numbers[1::2], strict=False))
    else:
        points = _points(box) if isinstance(box, str) else []
    polygon = _polygon(points)
    return ParsedLine(text, polygon, label) if polygon and (text or label) else None


def _numbers(box: list[object]) -> list[float]:
    """The numbers of `[x1, y1, x2, y2]` or `[[x, y], …]`, which may be huge."""
    flat = [n for entry in box for n in (entry if isinstance(entry, list) else [entry])]
    # min before float: integers of any length must not overflow.
    return [
        float(min(max(n, 0), SCALE))
        for n in flat
        if isinstance(n, int | float) and not isinstance(n, bool)
    ]


def _points(text: str) -> list[tuple[float, float]]:
    """The points written in a text, moved inside the page."""
    numbers = [float(number) for number in _NUMBER.findall(text)]
    if numbers and max(numbers) > SCALE:
        numbers = [min(number, SCALE) for number in numbers]
    pairs = iter(numbers)
    return list(zip(pairs, pairs, strict=False))


def _polygon(points: list[tuple[float, float]]) -> Polygon | None:
    """Two corners as a rectangle, three and more points as they are."""
    if len(points) > 2:
        return tuple(points)
    if len(points) < 2:
        return None
    (x1, y1), (x2, y2) = points
    if x1 <= x2 and y1 <= y2:
        return rectangle(x1, y1, x2, y2)
    return rectangle(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))


def _parse_markdown(raw: str) -> ParsedAnswer:
    """Take the figures' boxes off the ends of lines, but not out of tables and formulas."""
    kept: list[str] = []
    figures: list[Polygon] = []
    in_formula = False
    for line in raw.split("\n"):
        if line.count("$$") % 2 or ("\\[" in line) != ("\\]" in line):
            in_formula = not in_formula
        text, boxes = (line, []) if in_formula or "<t" in line else _split_figures(line)
        figures += boxes
        if text or not boxes:
            kept.append(text)
    return ParsedAnswer("\n".join(kept).strip(), figure_boxes=tuple(figures))


def _split_figures(line: str) -> tuple[str, list[Polygon]]:
    """A line without the boxes at its end, and these boxes."""
    end, figures = len(line.rstrip()), list[Polygon]()
    for match in reversed(list(_BOX.finditer(line))):
        if line[match.end() : end].strip(" \t,，"):
            break
        points = _points(match[0])
        (x1, y1), (x2, y2) = points
        box = _polygon(points)
        if x2 - x1 < MIN_FIGURE or y2 - y1 < MIN_FIGURE or box is None:
            break
        figures.append(box)
        end = match.start()
    return (line[:end].rstrip(" \t,，") if figures else line), figures[::-1]
