"""Long pages are cut into tiles, so that their text is not shrunk until nobody can read it.

A chat log of 720 x 12040 pixels shown whole within a megapixel would be a third as wide. Cuts
are made between lines where that is possible; elsewhere two tiles overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final

import numpy as np
from PIL import Image

from hunyuan_ocr.documents.document import PageSize

# A page shown whole at this scale or above stays legible.
_LEGIBLE: Final = 0.75
# Cutting must show text larger by this factor, or it is not worth the engine's time.
_GAIN: Final = 1.4
# A tile is at least as long as a sheet of paper of its width, and not as slim as a strip.
_ASPECT_MIN: Final = sqrt(2)
_ASPECT_MAX: Final = 8.0
_ASPECT_REFUSED: Final = 50.0
# Tiles are planned this full, which leaves room to move a cut to where nothing is written.
_FILL: Final = 0.8
# Two tiles share this much where a cut may meet text: more than a line is thick, and in pages cut
# from top to bottom some glyphs, by which halves of a line are joined.
_OVERLAP_MIN_PX: Final = 96
_OVERLAP_SHARE: Final = 0.25
# Between lines nothing changes from row to row, but for what the paper's own noise does.
_QUIET_ROWS: Final = 4
# From left to right there is such a gap between any two glyphs: only a gutter ends all lines.
_GUTTER_SHARE: Final = 0.25
_QUIET_CHANGES: Final = (12.0, 64.0)

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a page is cut: scaled to `content`, at most `tiles` of at most `length` pixels each.

    `down` says that the cuts go from side to side, one tile below the other.
    """

    content: PageSize
    length: int
    tiles: int
    down: bool

    @property
    def overlap(self) -> int:
        """Pixels that two tiles share where they are cut through something."""
        return min(max(_OVERLAP_MIN_PX, int(_OVERLAP_SHARE * self.across)), self.length // 5)

    @property
    def across(self) -> int:
        """How long a cut is, in pixels."""
        return self.content.width if self.down else self.content.height

    @property
    def tile(self) -> PageSize:
        """The size of the largest tile, in pixels."""
        sizes = (self.across, self.length)
        return PageSize(*sizes) if self.down else PageSize(*reversed(sizes))

    @property
    def quiet_min(self) -> int:
        """Rows or columns without ink that are wide enough to be cut through."""
        return _QUIET_ROWS if self.down else max(_QUIET_ROWS, int(_GUTTER_SHARE * self.across))


def tiling(source: PageSize, max_pixels: int, max_tiles: int) -> Tiling | None:
    """How a page of size `source` is cut into tiles of at most `max_pixels`, told by its size.

    None where it is read whole: because it is legible, or cutting would not help much.
    """
    short, long = sorted((source.width, source.height))
    whole = sqrt(max_pixels / (short * long))
    if max_tiles < 2 or whole >= _LEGIBLE:
        return None
    scale = min(
        1.0,
        sqrt(max_pixels / (short * short * _ASPECT_MIN)),
        sqrt(_FILL * max_tiles * max_pixels / (short * long)),
    )
    across, along = ceil(short * scale), ceil(long * scale)
    fitting = max_pixels // across
    length = min(fitting, int(across * _ASPECT_MAX))
    length = min(fitting, max(length, ceil(along / (_FILL * max_tiles))))
    tiles = min(max_tiles, ceil(along / (_FILL * length)))
    if scale < _GAIN * whole or length > _ASPECT_REFUSED * across:
        return None
    down = source.height > source.width
    content = PageSize(across, along) if down else PageSize(along, across)
    return Tiling(content, length, tiles, down)


def cut(plan: Tiling, quiet: Sequence[Span]) -> tuple[Span, ...]:
    """(start, end) of each tile along the page, which together cover it.

    A cut is made in the middle of the widest run of `quiet` rows in reach; where there is none,
    the tiles overlap. However that goes, there are at most `plan.tiles`.
    """
    total = plan.content.height if plan.down else plan.content.width
    spans: list[Span] = []
    start = 0
    while total - start > plan.length:
        left = plan.tiles - len(spans) - 1
        covered = left * (plan.length - plan.overlap) + plan.overlap
        earliest = max(start + plan.length // 2, total - covered)
        end = start + plan.length
        seam = _widest(quiet, earliest, end, plan.quiet_min)
        spans.append((start, end if seam is None else seam))
        start = end - plan.overlap if seam is None else seam
    return (*spans, (start, total))


def _widest(quiet: Iterable[Span], low: int, high: int, least: int) -> int | None:
    """The middle of the widest run within [low, high]; None where none is `least` wide."""
    runs = ((max(start, low), min(end, high)) for start, end in quiet)
    width, middle = max(((end - start, (start + end) // 2) for start, end in runs), default=(0, 0))
    return middle if width >= least else None


def quiet_rows(image: Image.Image) -> list[Span]:
    """Runs of rows in which nothing begins or ends, as (first, behind the last)."""
    grey = np.asarray(image.convert("L"), np.int16)
    change = np.abs(np.diff(grey, axis=0)).max(axis=1)
    usual = float(np.percentile(change, 10))
    loud = change > np.clip(1.5 * usual, *_QUIET_CHANGES)
    # A row is quiet if neither it nor the next begins something: count runs of quiet steps.
    edges = np.flatnonzero(np.diff(np.concatenate(([True], loud, [True])).astype(np.int8)))
    runs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return [(first, last + 1) for first, last in runs if last - first >= _QUIET_ROWS]
