"""Where pieces of lines of text lie on a page, told by its pixels alone, without a model."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from hunyuan_ocr.documents.ink import Grey, contrast, noise

# Glyphs are told apart at this size; larger pages are looked at through a thumbnail.
_THUMBNAIL_PIXELS = 1_000_000
_CONTRAST_MIN = 14.0
_NOISE_FACTOR = 3.0
# Smaller pieces are specks, or text too small to be read here.
_GLYPH_SIDE_MIN_PX = 5
# Rules, frames of tables and edges of photos: long, and thin or nearly empty inside.
_FRAME_SIDE_PX = 120
_FRAME_FILL_MAX = 0.15
_SLIM = 10
# What is farther apart than this share of a glyph is not in one piece of a line; lines are.
_GAP = 0.45
_LINE_ASPECT_MIN = 2.2
_LINE_THICKNESS = (0.5, 4.0)


@dataclass(frozen=True, slots=True)
class TextLine:
    """A piece of a line: its middle, length and thickness in pixels of the page.

    `angle` is in degrees clockwise from a line that runs to the right, -45 to 135.
    """

    x: float
    y: float
    length: float
    thickness: float
    angle: float

    @property
    def runs_down(self) -> bool:
        return self.angle > 45


def find_lines(grey: Grey) -> list[TextLine]:
    """Pieces of lines on a page, whichever way they run and a few degrees askew.

    Takes about 15 ms. Finds what is darker or lighter than the paper around it; on a page that
    holds no text it may find anything.
    """
    height, width = grey.shape
    scale = min(1.0, sqrt(_THUMBNAIL_PIXELS / (width * height)))
    if scale < 1:
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    ink, glyphs = _without_frames(_strong_ink(grey))
    if not len(glyphs):
        return []
    glyph = float(np.percentile(glyphs[:, 2:4].min(axis=1), 75))
    gap = max(2, round(_GAP * glyph))
    joined = cv2.morphologyEx(
        ink, cv2.MORPH_CLOSE, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (gap, gap))
    )
    contours, _ = cv2.findContours(joined, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    thinnest, thickest = (share * glyph for share in _LINE_THICKNESS)
    lines = (_line(contour, scale) for contour in contours)
    return [
        line
        for line in lines
        if line.length >= _LINE_ASPECT_MIN * line.thickness
        and thinnest <= line.thickness * scale <= thickest
    ]


def _strong_ink(grey: Grey) -> Grey:
    """255 where a pixel differs from the paper about as much as most ink does, else 0."""
    found = contrast(grey)
    faintest = max(_CONTRAST_MIN, _NOISE_FACTOR * noise(found))
    ink = found[found > faintest]
    strong = max(faintest, 0.5 * float(np.percentile(ink, 80))) if ink.size else faintest
    return np.where(found > strong, 255, 0).astype(np.uint8)


def _without_frames(ink: Grey) -> tuple[Grey, NDArray[Any]]:
    """The ink of what may be glyphs, and their (x, y, width, height, area)."""
    _, labels, boxes, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
    longer, shorter = boxes[:, 2:4].max(axis=1), boxes[:, 2:4].min(axis=1)
    hollow = boxes[:, 4] < _FRAME_FILL_MAX * longer * shorter
    slim = longer > _SLIM * shorter
    no_glyph = (longer > _FRAME_SIDE_PX) & (hollow | slim | (longer > 0.6 * max(ink.shape)))
    no_glyph |= longer < _GLYPH_SIDE_MIN_PX
    no_glyph[0] = True  # the paper
    return np.where(no_glyph[labels], 0, 255).astype(np.uint8), boxes[~no_glyph]


def _line(contour: Any, scale: float) -> TextLine:
    (x, y), (length, thickness), angle = cv2.minAreaRect(contour)
    if length < thickness:
        length, thickness, angle = thickness, length, angle + 90
    return TextLine(
        x / scale,
        y / scale,
        length / scale,
        max(thickness, 1.0) / scale,
        (angle + 45) % 180 - 45,
    )
