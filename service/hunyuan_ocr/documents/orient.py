"""Which way up a page is, told by reading a few pieces of its lines; runs in worker processes.

A page stays as it is unless its text surely reads better another way up: a wrong turn would cost
a whole page, a page not turned is what the caller sent.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from math import log
from typing import Any, Final

import cv2
import numpy as np
from PIL import Image

from hunyuan_ocr.documents import bundled
from hunyuan_ocr.documents.document import Degrees
from hunyuan_ocr.documents.ink import Grey
from hunyuan_ocr.documents.textlines import TextLine, find_lines

_RECOGNISER: Final = "PP-OCRv6_rec_small.onnx"
_STRIP_HEIGHT_PX: Final = 48  # what the recogniser takes
_STRIP_WIDTH_PX: Final = 144
_MARGIN: Final = 0.2  # around a line, of its thickness
_LINES_LOOKED_AT: Final = 24
_LINES_READ: Final = 4  # at once, until the way up is clear
_LINES_MAX: Final = 12
# From one Chinese glyph to the next; a glyph fills most of a strip's height.
_PITCHES_PX: Final = range(34, 56, 2)
_COLUMN_GLYPHS_MIN: Final = 4  # one or two read well in any place
_FIRST_CHINESE: Final = "\u2e80"
# Two pieces that read this well as they are settle it: the wrong way up, one in a hundred does.
_SURE: Final = 0.9
# Text the right way up reads with 0.85 to 1.0 in the mean, any other way with 0 to 0.75.
_READABLE: Final = 0.8
_BETTER: Final = 0.15
# Lines run across the page, or down it, when this share of their length does.
_CLEAR_AXIS: Final = 0.65


def turn_needed(image: Image.Image) -> Degrees:
    """Degrees clockwise by which `image` has to be turned to stand upright.

    Takes 50 ms where the page is upright, up to four times as long where it is not.
    """
    grey: Grey = np.asarray(image.convert("L"))
    lines = find_lines(grey)
    # Squared, since specks make many short pieces that run anyhow.
    down = sum(line.length**2 for line in lines if line.runs_down)
    across = sum(line.length**2 for line in lines) - down
    if not lines or max(across, down) < _CLEAR_AXIS * (across + down):
        return 0
    runs_down = down > across
    chosen = _typical([line for line in lines if line.runs_down is runs_down])
    strips = [_level(grey, line) for line in chosen]
    if not runs_down and min(strip.confidence for strip in _read(strips[:2])) >= _SURE:
        return 0
    # A line that runs down is level once the page is turned by 270.
    level: Degrees = 270 if runs_down else 0
    overturned: Degrees = 90 if runs_down else 180
    for end in range(_LINES_READ, len(strips) + _LINES_READ, _LINES_READ):
        some = strips[:end]
        as_is, over = _mean(_read(some)), _mean(_read([np.rot90(strip, 2) for strip in some]))
        if max(as_is, over) < _READABLE:
            break
        if as_is >= over + _BETTER:
            return _of_columns(level, as_is, some) if runs_down else 0
        if over >= as_is + _BETTER:
            return _of_columns(overturned, over, [np.rot90(strip, 2) for strip in some])
    return 0


def _of_columns(turn: Degrees, readable: float, strips: Sequence[Grey]) -> Degrees:
    """`turn`, unless the lines are columns of Chinese, whose glyphs then lie on their left side.

    The recogniser reads columns that way; set upright one by one, the glyphs of a column still
    make a readable line, while those of a line do not.
    """
    glyphs = _read([_glyphs_upright(strip) for strip in strips])
    text = "".join(strip.text for strip in glyphs)
    chinese = sum(character >= _FIRST_CHINESE for character in text)
    sure = _mean(glyphs) >= max(_SURE, readable - _BETTER)
    if not sure or chinese < max(_COLUMN_GLYPHS_MIN, len(text) / 2):
        return turn
    upright: dict[Degrees, Degrees] = {0: 90, 90: 180, 180: 270, 270: 0}
    return upright[turn]


def _typical(lines: Sequence[TextLine]) -> list[TextLine]:
    """Some lines, neither headings nor footnotes; those of the usual thickness first."""
    by_thickness = sorted(lines, key=lambda line: line.thickness)
    reached = list(accumulate(line.length**2 for line in by_thickness))
    usual = by_thickness[bisect(reached, reached[-1] / 2)].thickness
    longest = sorted(lines, key=lambda line: -line.length)[:_LINES_LOOKED_AT]
    longest.sort(key=lambda line: abs(log(line.thickness / usual)))
    return longest[:_LINES_MAX]


def _level(grey: Grey, line: TextLine) -> Grey:
    """The middle of a line as a strip in which it runs to the right."""
    scale = _STRIP_HEIGHT_PX / (line.thickness * (1 + _MARGIN) + 2)
    width = min(round(line.length * scale), _STRIP_WIDTH_PX)
    angle = np.deg2rad(line.angle)
    cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
    to_strip = np.array(
        [
            [cos, sin, width / 2 - cos * line.x - sin * line.y],
            [-sin, cos, _STRIP_HEIGHT_PX / 2 + sin * line.x - cos * line.y],
        ]
    )
    strip: Grey = cv2.warpAffine(
        grey, to_strip, (width, _STRIP_HEIGHT_PX), borderMode=cv2.BORDER_REPLICATE
    )
    return strip


def _glyphs_upright(strip: Grey) -> Grey:
    """Each glyph of a strip turned a quarter clockwise where it stands."""
    paper = int(np.median(strip))
    ink = cv2.blur(np.abs(strip.astype(np.float32) - paper).sum(axis=0)[None], (3, 1))[0]
    # Glyphs of a column stand at even distances: cut where the least ink is cut through.
    cuts = min(
        (range(first, len(ink), pitch) for pitch in _PITCHES_PX for first in range(pitch)),
        key=lambda places: float(ink[places].mean()) if len(places) > 1 else np.inf,
    )
    cells = [_cell(strip[:, left:right], paper) for left, right in pairwise(cuts)]
    return np.hstack(cells) if cells else strip


def _cell(glyph: Grey, paper: int) -> Grey:
    """A glyph in the middle of a square, turned."""
    left = max(0, _STRIP_HEIGHT_PX - glyph.shape[1]) // 2
    right = max(0, _STRIP_HEIGHT_PX - glyph.shape[1] - left)
    cell = np.pad(glyph, ((0, 0), (left, right)), constant_values=paper)
    return np.rot90(cell, -1)[:_STRIP_HEIGHT_PX]


@dataclass(frozen=True, slots=True)
class _Read:
    """What stands in a strip, and how sure the recogniser is, 0 to 1 (0: nothing)."""

    text: str
    confidence: float


def _mean(strips: Sequence[_Read]) -> float:
    """The confidence of a character."""
    characters = sum(len(strip.text) for strip in strips)
    return sum(strip.confidence * len(strip.text) for strip in strips) / max(1, characters)


def _read(strips: Sequence[Grey]) -> list[_Read]:
    session, characters = _recogniser()
    batch = np.zeros((len(strips), 3, _STRIP_HEIGHT_PX, _STRIP_WIDTH_PX), np.float32)
    for strip, place in zip(strips, batch, strict=True):
        width = min(strip.shape[1], _STRIP_WIDTH_PX)
        place[:, :, :width] = strip[:, :width].astype(np.float32) / 127.5 - 1
    (scores,) = session.run(None, {session.get_inputs()[0].name: batch})
    read = []
    for best, confidence in zip(scores.argmax(axis=2), scores.max(axis=2), strict=True):
        # As connectionist temporal classification reads: class 0 is no glyph, repeats are one.
        new = (best > 0) & np.diff(best, prepend=0).astype(bool)
        text = "".join(characters[glyph - 1] for glyph in best[new])
        read.append(_Read(text, float(confidence[new].mean()) if new.any() else 0.0))
    return read


@cache
def _recogniser() -> tuple[Any, list[str]]:
    """The session and its characters; one for each worker process, loaded for its first page."""
    session = bundled.session(bundled.model_path(_RECOGNISER), threads=1)
    return session, [*session.get_modelmeta().custom_metadata_map["character"].splitlines(), " "]
