"""JPEG: the header, read without decoding, and pictures that end early without saying so."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BytesIO
from typing import Final

from PIL import Image, JpegImagePlugin

from hunyuan_ocr.documents import tiff
from hunyuan_ocr.documents.frame import Frame
from hunyuan_ocr.documents.tiff import Buffer
from hunyuan_ocr.errors import ImageCorrupt, UnsupportedFormat

# A file made of empty segments would keep the event loop busy: nobody means more than this.
_SEGMENTS_MAX: Final = 20_000
_WITHOUT_SIZE: Final = frozenset((0x01, 0xD8, *range(0xD0, 0xD8)))
_END_OF_IMAGE, _START_OF_SCAN = 0xD9, 0xDA
# Baseline, extended and progressive in Huffman's coding, which every decoder knows.
_USUAL_PROCESSES: Final = frozenset((0xC0, 0xC1, 0xC2))
# The same in arithmetic coding, and lossless.
_READ_PROCESSES: Final = _USUAL_PROCESSES | {0xC3, 0xC9, 0xCA}
_OTHER_PROCESSES: Final = frozenset((0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xCE, 0xCF, 0xF7))

# What libjpeg leaves where it found no data: mid-grey, in each channel.
_FILLER: Final = frozenset((127, 128))
_FILLER_WIDTH_PX = 4
_ANY_SCAN_DATA: Final = bytes(range(1, 255)) * 8
_END: Final = b"\xff\xd9"


def read_frame(data: Buffer) -> Frame:
    """The picture that the header describes.

    Raises `ImageCorrupt`, and `UnsupportedFormat` for what no common decoder reads; struct.error
    and IndexError where the header ends early.
    """
    orientation = None
    for marker, at, end in _segments(data):
        if marker == 0xE1 and orientation is None and bytes(data[at : at + 6]) == b"Exif\0\0":
            # The first says it; those behind it go on with what is too long for one segment.
            orientation = tiff.exif_orientation(bytes(data[at:end]))
        elif marker in _OTHER_PROCESSES:
            raise UnsupportedFormat("Hierarchical JPEG and JPEG-LS are not read: use plain JPEG.")
        elif marker in _READ_PROCESSES:
            precision, height, width, components = struct.unpack_from(">BHHB", data, at)
            if precision != 8:
                raise UnsupportedFormat(f"JPEG of {precision} bits a sample is not read: use 8.")
            plain = components in (1, 3) and marker in _USUAL_PROCESSES
            return Frame(width, height, orientation or 1, plain=plain)
    raise ImageCorrupt("The JPEG has no frame header.")


def load(image: JpegImagePlugin.JpegImageFile) -> None:
    """Decode, and raise `ImageCorrupt` where the decoder made up what the file lacks.

    libjpeg fills the rest of a picture whose data end early with mid-grey and says nothing. A
    picture may end in that grey honestly: then all its data are there, and more behind them
    change nothing.
    """
    file = image.fp
    image.load()
    corner = (image.width - _FILLER_WIDTH_PX, image.height - 1, image.width, image.height)
    levels = {level for channel in image.crop(corner).split() for level in channel.getextrema()}
    if not levels <= _FILLER or not isinstance(file, BytesIO):
        return
    data = file.getvalue()
    end = data.index(_END, _scan_start(data))
    if _eighth(data) != _eighth(data[:end] + _ANY_SCAN_DATA + _END):
        raise ImageCorrupt("The picture's data end early.")


def _scan_start(data: Buffer) -> int:
    return next(at for marker, at, _ in _segments(data) if marker == _START_OF_SCAN)


def _eighth(data: bytes) -> bytes:
    """The pixels of a JPEG, decoded as small as can be."""
    with Image.open(BytesIO(data), formats=["JPEG"]) as image:
        image.draft(None, (1, 1))
        return image.tobytes()


def _segments(data: Buffer) -> Iterator[tuple[int, int, int]]:
    """(marker, start, end) of the segments up to the first scan's header."""
    at = 2
    for _ in range(_SEGMENTS_MAX):
        at = data.find(b"\xff", at)  # decoders skip stray bytes between segments, so we do
        if at < 0:
            return
        marker = data[at + 1]
        if marker in (0x00, 0xFF):
            at += 1
        elif marker in _WITHOUT_SIZE:
            at += 2
        elif marker == _END_OF_IMAGE:
            return
        else:
            (length,) = struct.unpack_from(">H", data, at + 2)
            yield marker, at + 4, at + 2 + length
            if marker == _START_OF_SCAN:
                return
            at += 2 + max(length, 2)
