"""HEIC's container: boxes in a row, of which libheif lets the last be cut off."""

from __future__ import annotations

import struct
from typing import Final

_HEADER_BYTES: Final = 8
_SIZE_FOLLOWS, _TO_THE_END = 1, 0


def is_whole(data: bytes) -> bool:
    """Whether every box is there to its end; a picture of tiles is decoded with holes if not."""
    at = 0
    while at + _HEADER_BYTES <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        if size == _SIZE_FOLLOWS and at + 16 <= len(data):
            (size,) = struct.unpack_from(">Q", data, at + 8)
        elif size == _TO_THE_END:
            return True
        if size < _HEADER_BYTES:
            return True  # no box: what a writer appended
        at += size
    return at <= len(data)
