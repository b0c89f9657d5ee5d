"""Finds out, while an answer streams, that it will never end.

A language model that has fallen into a loop writes the same characters until its token limit.
Pages repeat themselves too: dot leaders, ruled lines, identical rows of a table, sheets of
labels. Both are periodic; only the length of the repetition tells them apart, so the guard
looks for a tail that is exactly periodic for longer than any page is. A second form of the loop
counts ("1. foo 2. foo …"): there every number between the copies stands still or grows by
one fixed step.

Lengths are in characters. An answer that ends by itself is not endless, whatever it repeats:
callers stop a stream only if it goes on after `feed` said so.
"""

from __future__ import annotations

import re
from itertools import pairwise

# The tail is looked at once in so many characters: detection late by less is of no matter, and
# the cost a character stays that of appending.
CHECK_EVERY = 512
# The longest unit looked for: a block of some thirty lines.
MAX_PERIOD = 3000
# No page repeats a unit of any size for fewer characters than a loop does: a line of dots or
# underscores has some hundreds of them.
MIN_RUN = 1500
# Sheets of labels and ruled lines have up to about 40 equal lines, tables of blanks 60 rows.
MIN_COPIES = 48
MIN_ROWS = 64
# A unit longer than a short line is not printed that often: from there on length decides.
ENOUGH_RUN = 4800
ENOUGH_RUN_ROWS = 9600
# A block of any length that is repeated so often is a loop.
ALWAYS_COPIES = 4
# Numbered blanks on a form stay below this; a loop that counts does not stop.
MIN_COUNTED = 120
# The counting form is rare and dearer to look for.
CHECK_COUNTED_EVERY = 2048

# The end of the tail must come back one period before. Long enough to be rare in a unit,
# short enough that MIN_RUN holds it many times.
_ANCHOR = 64
# How many earlier places of the anchor are tried, where it comes more than once in a unit.
_CANDIDATES = 48
_KEEP = 2 * ENOUGH_RUN_ROWS + ALWAYS_COPIES * MAX_PERIOD
# More digits than counters reach; of longer numbers the end is compared.
_NUMBER_SIZE = 6
_DIGITS = re.compile(r"[0-9]+")
_ROW = re.compile(r"</t[rd]>|\|")


class RepetitionGuard:
    """Fed with the text of one answer in the order it streams."""

    def __init__(self) -> None:
        self._old: list[str] = []  # text before the tail
        self._new: list[str] = []  # text since the last look
        self._tail = ""
        self._shape = ""  # the tail with every run of digits as one 0
        self._unseen = 0
        self._counted_pause = 0
        self._cut: int | None = None  # where the text is cut, once the loop is certain

    def feed(self, delta: str) -> bool:
        """Take the next piece of text; True from when endless repetition is certain."""
        self._new.append(delta)
        self._unseen += len(delta)
        if self._unseen >= CHECK_EVERY and self._cut is None:
            self._look()
        return self._cut is not None

    def text(self) -> str:
        """All text so far."""
        return "".join([*self._old, self._tail, *self._new])

    def trimmed(self) -> str:
        """The text up to and including the first copy of what is repeated without end."""
        return self.text()[: self._cut]

    def _look(self) -> None:
        added = "".join(self._new)
        self._counted_pause -= self._unseen
        self._new, self._unseen = [], 0
        shape = added
        if self._shape.endswith("0"):  # the last run of digits may go on
            shape = added.lstrip("0123456789")
        self._tail += added
        self._shape += _DIGITS.sub("0", shape)
        if len(self._tail) > 2 * _KEEP:
            self._old.append(self._tail[:-_KEEP])
            self._tail = self._tail[-_KEEP:]
        self._shape = self._shape[-_KEEP:] if len(self._shape) > 2 * _KEEP else self._shape
        period = _endless_period(self._tail)
        if period:
            self._cut = self._first_copy_end(period)
        elif self._counted_pause <= 0:
            self._counted_pause = CHECK_COUNTED_EVERY
            self._look_for_counting()

    def _first_copy_end(self, period: int) -> int:
        """Where the first copy ends in the whole text, once the tail is known to repeat."""
        text = self.text()
        return len(text) - _run(text, period) + period

    def _look_for_counting(self) -> None:
        period = _endless_period(self._shape, MIN_COUNTED)
        if not period:
            return
        a_unit = len(_DIGITS.findall(self._shape[-period:]))
        # Of the first and the last copy a part may be missing.
        copies = self._tail[-MIN_COUNTED * (period + _NUMBER_SIZE * a_unit) :]
        runs = _DIGITS.findall(copies)[-(MIN_COUNTED - 1) * a_unit : -1]
        numbers = [int(digits[-_NUMBER_SIZE:]) for digits in runs]
        if not _counts(numbers, a_unit):
            return
        text = self.text()
        shape = _DIGITS.sub("0", text)
        start = len(shape) - _run(shape, period)
        self._cut = _unshaped(text, start + period)


def _endless_period(text: str, min_copies: int = 0) -> int:
    """The period of a tail that repeats for longer than a page does; 0 if it does not."""
    if len(text) < MIN_RUN:
        return 0
    end, floor = len(text), max(0, len(text) - MAX_PERIOD - _ANCHOR)
    anchor = text[-_ANCHOR:]
    place = end - _ANCHOR
    for _ in range(_CANDIDATES):
        place = text.rfind(anchor, floor, place + _ANCHOR - 1)
        if place < 0:
            return 0
        period = end - _ANCHOR - place
        needed = max(_needed(text[-period:]), min_copies * period)
        # Slices compare in C: most candidates differ within a few characters.
        if end >= needed and text[-needed + period :] == text[-needed:-period]:
            return period
    return 0


def _needed(unit: str) -> int:
    """For how many characters this unit must have been repeated."""
    copies, enough = (MIN_ROWS, ENOUGH_RUN_ROWS) if _ROW.search(unit) else (MIN_COPIES, ENOUGH_RUN)
    size = len(unit)
    return max(MIN_RUN, min(copies * size, enough), ALWAYS_COPIES * size)


def _run(text: str, period: int) -> int:
    """How long the tail of `text` is periodic with `period`, by bisection on slices."""
    low, high = period, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if text[-middle + period :] == text[-middle:-period]:
            low = middle
        else:
            high = middle - 1
    return low


def _counts(numbers: list[int], a_unit: int) -> bool:
    """Whether the numbers of the copies stand still or grow by a fixed step each."""
    if not a_unit or len(numbers) < 2 * a_unit:
        return False
    columns = [numbers[start::a_unit] for start in range(a_unit)]
    steps = [{b - a for a, b in pairwise(column)} for column in columns]
    return all(len(step) == 1 for step in steps)


def _unshaped(text: str, index: int) -> int:
    """The place in `text` of a place in its shape."""
    shift = 0
    for match in _DIGITS.finditer(text):
        if match.start() - shift >= index:
            break
        shift += len(match[0]) - 1
    return index + shift
