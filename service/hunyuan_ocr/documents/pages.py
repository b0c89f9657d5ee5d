"""Which pages of a document are meant: `1,3-5`, `7-`."""

from __future__ import annotations

import re

from hunyuan_ocr.errors import InvalidField, PageOutOfRange, TooManyPages

_SELECTION_CHARACTERS_MAX = 1000
_PART = re.compile(r"\s*([0-9]{1,9})\s*(?:(-)\s*([0-9]{1,9})?\s*)?")


def parse_pages(selection: str | None, pages_total: int, max_pages: int) -> tuple[int, ...]:
    """0-based indices of the pages that `selection` names, in its order, each once.

    Pages count from 1; `a-b` includes both ends, `a-` reaches to the last page; None means all.

    Raises `InvalidField` (not a selection), `PageOutOfRange` (of the document's `pages_total`),
    `TooManyPages` (more than `max_pages` are meant).
    """
    if selection is None:
        chosen = list(range(min(pages_total, max_pages + 1)))
    else:
        chosen = _read(selection, pages_total, max_pages)
    if len(chosen) > max_pages:
        raise TooManyPages(f"At most {max_pages} pages are read per request.")
    return tuple(chosen)


def _read(selection: str, pages_total: int, max_pages: int) -> list[int]:
    if len(selection) > _SELECTION_CHARACTERS_MAX:
        raise InvalidField("`pages` is too long.")
    chosen: dict[int, None] = {}  # a set that keeps the order
    for part in selection.split(","):
        first, last = _read_range(part, pages_total)
        # One page over the limit is enough to know.
        chosen.update(dict.fromkeys(range(first - 1, min(last, first + max_pages))))
    return list(chosen)


def _read_range(part: str, pages_total: int) -> tuple[int, int]:
    """1-based first and last page, both inside the document."""
    match = _PART.fullmatch(part)
    if match is None:
        raise InvalidField("`pages` takes page numbers and ranges, for example `1,3-5`.")
    start, dash, end = match.groups()
    first = int(start)
    last = int(end) if end else pages_total if dash else first
    if not 1 <= first <= pages_total or last > pages_total:
        raise PageOutOfRange(f"The document's pages are 1 to {pages_total}.")
    if last < first:
        raise InvalidField("A range in `pages` ends before it starts.")
    return first, last
