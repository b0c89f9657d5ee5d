"""The little of TIFF that headers need: its chain of directories. EXIF blocks are TIFF too."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

Buffer = bytes | mmap.mmap

_SUBFILE_TYPE, _WIDTH, _HEIGHT, _ORIENTATION = 254, 256, 257, 274
_WANTED: Final = frozenset((_SUBFILE_TYPE, _WIDTH, _HEIGHT, _ORIENTATION))
_THUMBNAIL_OR_MASK = 0b101
# Directories may overlap, so the size of the file bounds neither: these do.
_TAGS_PER_DIRECTORY_MAX = 4096
_TAGS_MAX = 200_000
# Field types that hold one unsigned number: BYTE, SHORT, LONG, IFD, LONG8, IFD8.
_NUMBERS: Final = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}


class TiffError(ValueError):
    """The bytes do not hold a directory where one should be."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How numbers are written: classic or BigTIFF, in either byte order."""

    order: str
    count: str
    offset: str
    value_at: int
    entry_bytes: int
    first_directory: int


@dataclass(frozen=True, slots=True)
class Directory:
    """One directory; `width` and `height` as stored, `orientation` 1 to 8.

    `position` counts all directories from 0, `is_page` is false for thumbnails and masks.
    `next_is_missing` says that the chain leads on to what cannot be read.
    """

    position: int
    width: int
    height: int
    orientation: int
    is_page: bool
    next_is_missing: bool = False


def directories(data: Buffer) -> Iterator[Directory]:
    """Yield the directories of the chain; ends where it comes back to itself.

    Raises `TiffError` where the first is unreadable; a later one that is ends the chain, as the
    pages before it are whole.
    """
    layout = _read_layout(data)
    offset, seen, position, tags = layout.first_directory, set[int](), 0, 0
    last: Directory | None = None
    while offset and offset not in seen and tags < _TAGS_MAX:
        seen.add(offset)
        try:
            values, entries, offset = _read_directory(data, layout, offset)
        except (struct.error, TiffError):
            if last is None:
                raise TiffError("no directory") from None
            yield replace(last, next_is_missing=True)
            return
        if last is not None:
            yield last
        tags += entries
        last = Directory(
            position=position,
            width=values.get(_WIDTH, 0),
            height=values.get(_HEIGHT, 0),
            orientation=_orientation(values),
            is_page=not values.get(_SUBFILE_TYPE, 0) & _THUMBNAIL_OR_MASK,
        )
        position += 1
    if last is not None:
        yield replace(last, next_is_missing=bool(offset) and offset not in seen)


def exif_orientation(block: bytes) -> int:
    """The orientation, 1 to 8, that an EXIF block states; 1 where it is silent or broken."""
    data = block.removeprefix(b"Exif\0\0")
    try:
        layout = _read_layout(data)
        values, _, _ = _read_directory(data, layout, layout.first_directory)
    except (struct.error, TiffError):
        return 1
    return _orientation(values)


def _orientation(values: dict[int, int]) -> int:
    found = values.get(_ORIENTATION, 1)
    return found if 1 <= found <= 8 else 1


def _read_layout(data: Buffer) -> Layout:
    order = {b"II": "<", b"MM": ">"}.get(bytes(data[:2]))
    if order is None:
        raise TiffError("no byte order")
    try:
        (version,) = struct.unpack_from(order + "H", data, 2)
        if version == 43:
            (first,) = struct.unpack_from(order + "Q", data, 8)
            return Layout(order, "Q", "Q", 12, 20, first)
        (first,) = struct.unpack_from(order + "I", data, 4)
    except struct.error:
        raise TiffError("too short") from None
    return Layout(order, "H", "I", 8, 12, first)


def _read_directory(data: Buffer, layout: Layout, at: int) -> tuple[dict[int, int], int, int]:
    """The wanted values by tag, the number of all, the offset of the next directory (0: none)."""
    if at >= len(data):
        raise TiffError("directory beyond the end")
    (entries,) = struct.unpack_from(layout.order + layout.count, data, at)
    if entries > _TAGS_PER_DIRECTORY_MAX:
        raise TiffError("too many tags")
    at += struct.calcsize(layout.order + layout.count)
    values: dict[int, int] = {}
    for entry in range(at, at + entries * layout.entry_bytes, layout.entry_bytes):
        tag, field_type = struct.unpack_from(layout.order + "HH", data, entry)
        if tag in _WANTED and field_type in _NUMBERS:
            number = layout.order + _NUMBERS[field_type]
            (values[tag],) = struct.unpack_from(number, data, entry + layout.value_at)
    try:
        end = at + entries * layout.entry_bytes
        (following,) = struct.unpack_from(layout.order + layout.offset, data, end)
    except struct.error:  # EXIF writers often leave the last link out
        following = 0
    return values, entries, following
