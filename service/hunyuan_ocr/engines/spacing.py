"""Spaces that a recognizer dropped, put back where the paper shows them.

Between words its sense of language gives the recognizer spaces; between groups of digits, or
between Chinese and Latin, it often forgets them. The gap in the ink does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

# Measured on drawn lines: a gap without a space is mostly below 0.2 of the line's height (more
# beside narrow characters such as 1 and the full stop), one with a space is 0.25 to 0.5.
_GAP_HEIGHTS_MIN = 0.25
_GAP_MEDIANS_MIN = 2.2
# Digits stand at equal distances from middle to middle, narrow ones too.
_PITCH_MIN = 1.35
_COLUMN_PX = 8  # the recognizer looks at a line of 48 pixels' height in steps of 8
_LINE_PX = 48


def restore_spaces(
    text: str, characters: Sequence[str], columns: Sequence[int], crop: NDArray[Any]
) -> str:
    """`text` with a space wherever a digit or Chinese stands a word's distance from Latin.

    `characters` are those of `text` without spaces, `columns` where the recognizer saw each,
    `crop` is the line's image (height, width, 3), dark or light on any ground.
    """
    if len(characters) < 2 or "".join(characters) != text.replace(" ", ""):
        return text
    height = crop.shape[0]
    ink = _ink(crop)
    places = [int((column + 0.5) * _COLUMN_PX * height / _LINE_PX) for column in columns]
    gaps, pitches = zip(*(_distances(ink, a, b) for a, b in pairwise(places)), strict=True)
    least_gap = max(_GAP_HEIGHTS_MIN * height, _GAP_MEDIANS_MIN * float(np.median(gaps)))
    pairs = list(pairwise(characters))
    of_digits = [p for pair, p in zip(pairs, pitches, strict=True) if "".join(pair).isdecimal()]
    least_pitch = _PITCH_MIN * float(np.median(of_digits)) if of_digits else 0.0
    parted = [
        gap > least_gap and _can_be_parted(*pair, wide=pitch > least_pitch)
        for pair, gap, pitch in zip(pairs, gaps, pitches, strict=True)
    ]
    return _insert(text, [False, *parted])


def _insert(text: str, parted: Sequence[bool]) -> str:
    """Put a space before the n-th character that is none, where `parted[n]` and none is there."""
    spaced, left = "", iter(parted)
    for character in text:
        if character != " " and next(left) and not spaced.endswith(" "):
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


def _distances(ink: NDArray[np.bool_], left: int, right: int) -> tuple[int, float]:
    """Pixels between the inks and between the middles of two characters seen about there."""
    start = max(0, left - 2)
    blanks = np.flatnonzero(np.concatenate(([True], ink[start : right + 3], [True])))
    widest = int(np.diff(blanks).argmax())
    gap_start = start + int(blanks[widest])  # `blanks` counts from one column before `start`
    gap_end = start + int(blanks[widest + 1]) - 1
    first, last = gap_start - 1, gap_end
    while first > 0 and ink[first - 1]:
        first -= 1
    while last < len(ink) - 1 and ink[last + 1]:
        last += 1
    return gap_end - gap_start, (gap_end + last - first - gap_start + 1) / 2


def _can_be_parted(left: str, right: str, *, wide: bool) -> bool:
    """Words of letters have their spaces already; beside full-width marks a gap means nothing."""
    if left in "¥$€£":
        return False
    if _is_latin(left) and _is_latin(right):
        return wide and (left.isdecimal() or right.isdecimal())
    chinese, other = (left, right) if _is_chinese(left) else (right, left)
    return _is_chinese(chinese) and _is_latin(other) and other.isalnum()


def _is_latin(character: str) -> bool:
    return "!" <= character < "\u0250"


def _is_chinese(character: str) -> bool:
    return "\u4e00" <= character <= "\u9fff"
