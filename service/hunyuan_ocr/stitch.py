"""Reads a page tile by tile and puts together what was read, at seams that overlap too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from math import ceil

from hunyuan_ocr.documents.document import PreparedImage, PreparedPage, PreparedTile
from hunyuan_ocr.documents.geometry import Polygon, bounds, clamp, rectangle
from hunyuan_ocr.engines.base import FinishReason, Line, TokenUsage
from hunyuan_ocr.recognise import OnText, Recognition, TextEvent, TextPiece, TextRestart

Read = Callable[[PreparedImage, OnText | None], Awaitable[Recognition]]

# Two boxes are of one line when they share this much of the smaller one.
_SAME_LINE = 0.5
# How much farther a line must reach to be longer, as a share of what the tiles share.
_LONGER = 0.1
# What two tiles both show is at most a few lines; a match is sure at some characters.
_LINES_SHARED_MAX = 3
_CHARACTERS_SHARED_MAX = 400
_MATCH_MIN = 4
_CHARACTERS_SLACK = 2


@dataclass(frozen=True, slots=True)
class _Seam:
    """What two neighbouring tiles both show: [start, end] on the axis (0: x, 1: y)."""

    axis: int
    start: float
    end: float


async def read_page(
    page: PreparedPage, read: Read, gap: str, on_text: OnText | None
) -> Recognition:
    """Read the tiles in order; the lines of the result are in upright source pixels.

    `gap` stands between two lines of text. What is streamed of a seam may come twice; the text
    of the result holds it once. Raises what `read` raises.
    """
    whole: Recognition | None = None
    for at, tile in enumerate(page.tiles):
        hear = None
        if on_text is not None:
            said = f"{whole.text}{gap}" if whole and whole.text else ""
            if said:
                await on_text(TextPiece(gap))
            hear = partial(_hear, on_text, said)
        part = _on_page(await read(tile.image, hear), tile, page)
        whole = part if whole is None else _joined(whole, part, _seam(page, at), gap)
    assert whole is not None, "a page has a tile"  # noqa: S101
    return whole


async def _hear(on_text: OnText, said: str, event: TextEvent) -> None:
    """Pass on what is heard of a tile; a restart voids the page's text, so it is said again."""
    await on_text(event)
    if isinstance(event, TextRestart) and said:
        await on_text(TextPiece(said))


def _on_page(read: Recognition, tile: PreparedTile, page: PreparedPage) -> Recognition:
    lines = tuple(_in_source(line, tile, page) for line in read.lines)
    return replace(read, lines=lines)


def _in_source(line: Line, tile: PreparedTile, page: PreparedPage) -> Line:
    mapped = (tile.placement.to_source(point) for point in line.polygon)
    polygon = clamp(mapped, page.source.width, page.source.height)
    return replace(line, polygon=tuple((round(x, 1), round(y, 1)) for x, y in polygon))


def _seam(page: PreparedPage, at: int) -> _Seam | None:
    """What tile `at` shows of the tile before it."""
    before, after = (tile.shown for tile in page.tiles[at - 1 : at + 1])
    axis = 0 if after[0] > before[0] else 1
    start, end = after[axis], before[axis + 2]
    return _Seam(axis, start, end) if end - start >= 1 else None


def _joined(before: Recognition, after: Recognition, seam: _Seam | None, gap: str) -> Recognition:
    lines = (*before.lines, *after.lines)
    if seam is None:
        text = gap.join(part for part in (before.text, after.text) if part)
    elif lines:
        lines = stitch_lines(before.lines, after.lines, seam)
        text = gap.join(line.text for line in lines if line.text)
    else:
        text = stitch_texts(before.text, after.text, gap)
    return Recognition(
        text=text,
        lines=lines,
        value=None,
        finish_reason=_worse(before, after),
        usage=TokenUsage(
            before.usage.prompt + after.usage.prompt, before.usage.output + after.usage.output
        ),
        warnings=tuple(dict.fromkeys((*before.warnings, *after.warnings))),
        attempts=before.attempts + after.attempts,
    )


def _worse(*parts: Recognition) -> FinishReason:
    order: tuple[FinishReason, ...] = ("stop", "length", "repetition")
    return max((part.finish_reason for part in parts), key=order.index)


def stitch_lines(before: Sequence[Line], after: Sequence[Line], seam: _Seam) -> tuple[Line, ...]:
    """The lines of two tiles, each once.

    A line that one tile shows to its end and the other cuts is taken from the first; one that
    both cut is put together from its two halves.
    """
    lines, rest = list(before), []
    near = [i for i, line in enumerate(lines) if bounds(line.polygon)[seam.axis + 2] > seam.start]
    for line in after:
        same = next((i for i in near if _is_same(lines[i], line, seam)), None)
        if same is None:
            rest.append(line)
        else:
            lines[same] = _merged(lines[same], line, seam)
    return (*lines, *rest)


def _is_same(one: Line, other: Line, seam: _Seam) -> bool:
    """Whether both are the same line, as far as the tiles share it."""
    a, b = bounds(one.polygon), bounds(other.polygon)
    along, across = seam.axis, 1 - seam.axis
    if min(a[along + 2], b[along + 2]) <= seam.start or max(a[along], b[along]) >= seam.end:
        return False
    clipped = [(max(box[along], seam.start), min(box[along + 2], seam.end)) for box in (a, b)]
    return _shared(*clipped) and _shared((a[across], a[across + 2]), (b[across], b[across + 2]))


def _shared(one: tuple[float, float], other: tuple[float, float]) -> bool:
    common = min(one[1], other[1]) - max(one[0], other[0])
    return common > 0 and common >= _SAME_LINE * min(one[1] - one[0], other[1] - other[0])


def _merged(one: Line, other: Line, seam: _Seam) -> Line:
    """The same line of the earlier and the later tile."""
    a, b = bounds(one.polygon), bounds(other.polygon)
    slack = _LONGER * (seam.end - seam.start)
    if a[seam.axis + 2] >= b[seam.axis + 2] - slack:
        return one
    if b[seam.axis] <= a[seam.axis] + slack:
        return other
    corners: Polygon = (a[:2], a[2:], b[:2], b[2:])
    tail = _characters(one, a[seam.axis + 2] - seam.start, seam.axis)
    head = _characters(other, seam.end - b[seam.axis], seam.axis)
    text = _overlapping(one.text, other.text, tail, head) or f"{one.text}{other.text}"
    return Line(text, rectangle(*bounds(corners)), one.label)


def _characters(line: Line, shared: float, axis: int) -> int:
    """How many characters of a line `shared` pixels of it may hold."""
    box = bounds(line.polygon)
    share = shared / max(1.0, box[axis + 2] - box[axis])
    return ceil(share * len(line.text)) + _CHARACTERS_SLACK


def stitch_texts(before: str, after: str, gap: str) -> str:
    """Two texts of which the last lines of one and the first of the other may say the same.

    Without a match both stand whole, with `gap` between: rather twice than lost.
    """
    if not before or not after:
        return before or after
    tail = sum(len(line) + 1 for line in before.split("\n")[-_LINES_SHARED_MAX:])
    head = sum(len(line) + 1 for line in after.split("\n")[:_LINES_SHARED_MAX])
    joined = _overlapping(before, after, tail, head, lines=True)
    return joined or f"{before}{gap}{after}"


def _overlapping(
    before: str, after: str, tail: int, head: int, *, lines: bool = False
) -> str | None:
    """Both texts as one, by what is said in the `tail` characters of one and `head` of the other.

    What a cut left of a glyph or a line stands behind the match in the first text and before it
    in the second, and is left out; of lines that say the same, as little as can be. None without
    a match; of `lines` it is half of one at the least.
    """
    tail, head = (min(count, _CHARACTERS_SHARED_MAX) for count in (tail, head))
    end, begin = before[-tail:], after[:head]
    match = SequenceMatcher(None, end, begin, autojunk=False).find_longest_match()
    same = end[match.a :][: match.size]
    shared, blank = same.strip(), len(same) - len(same.lstrip())
    if not shared or match.size < min(_MATCH_MIN, len(end), len(begin)):
        return None
    if lines:
        around = (
            len(_lines_around(text, at + blank, len(shared)))
            for text, at in ((end, match.a), (begin, match.b))
        )
        if len(shared) < max(min(_MATCH_MIN, len(end), len(begin)), min(around) / 2):
            return None
    kept = len(before) - len(end) + end.rindex(shared) + len(shared)
    return before[:kept] + after[begin.index(shared) + len(shared) :]


def _lines_around(text: str, at: int, size: int) -> str:
    """The lines that a part of the text is in."""
    stop = text.find("\n", at + size)
    return text[text.rfind("\n", 0, at) + 1 : stop if stop >= 0 else len(text)]
