"""Spaces that a recognizer dropped, put back where the paper shows them.

Between words the recognizer's language sense gives spaces; between groups of digits, or
between Chinese and Latin, it often forgets them. The gap in the ink does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

# Measured on drawn lines: a gap without a space is at most 0.26 of the line's height (0.30 in
# monospace, where all gaps are wide), one with a space at least 0.25 and mostly 0.3 to 0.5.
_GAP_HEIGHTS_MIN = 0.25
_GAP_MEDIANS_MIN = 2.2
_COLUMN_PX = 8  # the recognizer looks at a line of 48 pixels' height in steps of 8
_LINE_PX = 48


def restore_spaces(
    text: str, characters: Sequence[str], columns: Sequence[int], crop: NDArray[Any]
) -> str:
    """`text` with a space where two of its characters stand a word's distance apart.

    `characters` are those of `text` without spaces, `columns` where the recognizer saw each,
    `crop` is the line's image (height, width, 3), dark or light on any ground. Between two
    Chinese characters, or beside full-width punctuation, a gap means nothing.
    """
    if len(characters) < 2 or "".join(characters) != text.replace(" ", ""):
        return text
    height = crop.shape[0]
    ink = _ink(crop)
    places = [int((column + 0.5) * _COLUMN_PX * height / _LINE_PX) for column in columns]
    gaps = [_longest_gap(ink[max(0, a - 2) : b + 3]) for a, b in pairwise(places)]
    least = max(_GAP_HEIGHTS_MIN * height, _GAP_MEDIANS_MIN * float(np.median(gaps)))
    rest = iter(text)
    spaced = next(rest)
    for (left, right), gap in zip(pairwise(characters), gaps, strict=True):
        character = next(rest)
        if character == " ":
            while character == " ":
                character = next(rest)
            spaced += " "
        elif gap > least and _can_be_parted(left, right):
            spaced += " "
        spaced += character
    return spaced


def _ink(crop: NDArray[Any]) -> NDArray[np.bool_]:
    """Which columns of a line hold ink, as (width,) booleans."""
    grey = cv2.cvtColor(crop, cv2.COLOR_BGR2GRAY)
    _, mask = cv2.threshold(grey, 0, 1, cv2.THRESH_BINARY_INV | cv2.THRESH_OTSU)
    if mask.mean() > 0.5:  # light text on a dark ground
        mask = 1 - mask
    edge = len(mask) // 10  # neighbouring lines and rules reach in there
    return np.asarray(mask[edge : len(mask) - edge].any(axis=0), np.bool_)


def _longest_gap(ink: NDArray[np.bool_]) -> int:
    """The longest run of columns without ink, in pixels."""
    marks = np.flatnonzero(np.concatenate(([True], ink, [True])))
    return int(np.diff(marks).max()) - 1


def _can_be_parted(left: str, right: str) -> bool:
    if _is_latin(left) and _is_latin(right):
        return True
    chinese, other = (left, right) if _is_chinese(left) else (right, left)
    return _is_chinese(chinese) and _is_latin(other) and other.isalnum()


def _is_latin(character: str) -> bool:
    return "!" <= character < "\u0250"


def _is_chinese(character: str) -> bool:
    return "\u4e00" <= character <= "\u9fff"
