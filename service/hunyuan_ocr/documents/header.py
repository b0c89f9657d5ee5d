"""Sizes and page counts, read from headers alone: no pixel is decoded, nothing allocated.

The formats that are simple enough are read here, in pure code; PDF, AVIF, HEIC and JPEG 2000
need a library that parses much more, in a worker process (`prepare.Preparer.inspect`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from hunyuan_ocr.documents import jpeg, tiff
from hunyuan_ocr.documents.document import Document, DocumentInfo, DocumentKind, PageSize
from hunyuan_ocr.documents.frame import Frame
from hunyuan_ocr.documents.tiff import Buffer
from hunyuan_ocr.errors import ImageCorrupt, ImageTooLarge, TooManyPages, UnsupportedFormat

# Thumbnails, masks and the levels of pyramids stand in a TIFF's chain beside its pages.
_DIRECTORIES_PER_PAGE_MAX = 16
# A file made of empty segments would keep the event loop busy: nobody means more than this.
_SEGMENTS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What is taken at all; `max_megapixels` per page, `max_pages` per document.

    `pdf_dpi` is the resolution at which PDF pages are measured.
    """

    max_megapixels: float
    max_pages: int
    pdf_dpi: int = 200

    def check_page(self, page: PageSize) -> None:
        """Raise `ImageTooLarge` for a page beyond `max_megapixels`."""
        if page.megapixels > self.max_megapixels:
            raise ImageTooLarge(
                f"The page has {page.megapixels:.1f} megapixels, "
                f"more than the limit of {self.max_megapixels:g}."
            )

    def check_count(self, pages: int) -> None:
        """Raise `TooManyPages` for a document beyond `max_pages`."""
        if pages > self.max_pages:
            raise TooManyPages(f"The document has more pages than the limit of {self.max_pages}.")


def read_header(document: Document, limits: Limits) -> DocumentInfo:
    """The upright sizes of all pages.

    A picture that is alone is refused here when it is too large; of many pages one that is too
    large must not cost the caller the others: `prepare` refuses it by itself.

    Raises `ImageCorrupt`, `ImageTooLarge`, `TooManyPages`, and `UnsupportedFormat` for 12-bit
    JPEG and formats that only a worker reads.
    """
    frames = read_frames(document.kind, document.data, limits)
    info = checked(tuple(frame.upright for frame in frames), limits)
    return replace(info, cut_off=any(frame.last_before_cut for frame in frames))


def checked(pages: tuple[PageSize, ...], limits: Limits) -> DocumentInfo:
    """The pages as a `DocumentInfo` if they are within the limits."""
    limits.check_count(len(pages))
    if len(pages) == 1:
        limits.check_page(pages[0])
    return DocumentInfo(pages)


def read_frames(kind: DocumentKind, data: Buffer, limits: Limits) -> tuple[Frame, ...]:
    """All pictures of the file, each of at least one pixel; errors as `read_header`."""
    if kind is DocumentKind.TIFF:
        frames = _read_tiff(data, limits)
    elif kind in _READERS:
        try:
            frames = (_READERS[kind](data),)
        except (struct.error, IndexError):
            raise ImageCorrupt("The header ends too early.") from None
    else:
        raise UnsupportedFormat("This format's header is read in a worker.")
    if any(frame.width < 1 or frame.height < 1 for frame in frames):
        raise ImageCorrupt("The header states a size of nothing.")
    return frames


def _read_tiff(data: Buffer, limits: Limits) -> tuple[Frame, ...]:
    chain = islice(tiff.directories(data), limits.max_pages * _DIRECTORIES_PER_PAGE_MAX + 1)
    frames: list[Frame] = []
    try:
        for directory in chain:
            if directory.is_page:
                limits.check_count(len(frames) + 1)
                frames.append(_frame_of(directory))
    except tiff.TiffError as error:
        raise ImageCorrupt from error
    if next(chain, None) is None and not frames:
        raise ImageCorrupt("The file holds no page.")
    return tuple(frames)


def _frame_of(directory: tiff.Directory) -> Frame:
    return Frame(
        directory.width,
        directory.height,
        directory.orientation,
        position=directory.position,
        last_before_cut=directory.next_is_missing,
    )


def _read_png(data: Buffer) -> Frame:
    name, width, height, depth, colour = struct.unpack_from(">4sIIBB", data, 12)
    if name == b"CgBI":
        raise UnsupportedFormat("PNG as packed into iPhone apps is not read: export it anew.")
    if name != b"IHDR":
        raise ImageCorrupt("The PNG does not start with its header.")
    orientation, plain = None, depth == 8 and colour in (0, 2)
    for name, at, end in _chunks(data, 8, ">I4s"):
        if name == b"eXIf" and orientation is None:
            orientation = tiff.exif_orientation(bytes(data[at:end]))
        elif name in (b"tRNS", b"acTL"):
            plain = False
    return Frame(width, height, orientation or 1, plain=plain)


def _chunks(data: Buffer, at: int, layout: str) -> Iterator[tuple[bytes, int, int]]:
    """(name, start, end) of the chunks from `at`: PNG's as `>I4s`, RIFF's as `<4sI`."""
    is_png = layout == ">I4s"
    for _ in range(_SEGMENTS_MAX):
        if at + 8 > len(data):
            return
        first, second = struct.unpack_from(layout, data, at)
        name, length = (second, first) if is_png else (first, second)
        yield name, at + 8, at + 8 + length
        at += 8 + length + (4 if is_png else length % 2)  # a checksum; padding to even


_VP8X_ALPHA, _VP8X_ANIMATION = 0x10, 0x02


def _read_webp(data: Buffer) -> Frame:
    name = bytes(data[12:16])
    if name == b"VP8X":
        return _read_webp_extended(data)
    if name == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        return Frame(width, height, plain=not bits >> 28 & 1)
    if name == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return Frame(width & 0x3FFF, height & 0x3FFF, plain=True)
    raise ImageCorrupt("The WebP holds no picture.")


def _read_webp_extended(data: Buffer) -> Frame:
    flags = data[20]
    width = int.from_bytes(data[24:27], "little") + 1
    height = int.from_bytes(data[27:30], "little") + 1
    orientation = None
    for name, at, end in _chunks(data, 12, "<4sI"):
        if name == b"EXIF" and orientation is None:
            orientation = tiff.exif_orientation(bytes(data[at:end]))
    plain = not flags & (_VP8X_ALPHA | _VP8X_ANIMATION)
    return Frame(width, height, orientation or 1, plain=plain)


_BMP_HOLDS_ANOTHER = (4, 5)


def _read_bmp(data: Buffer) -> Frame:
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    if header_bytes == 12:
        width, height = struct.unpack_from("<HH", data, 18)
        return Frame(width, height)
    width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
    if compression in _BMP_HOLDS_ANOTHER:
        raise UnsupportedFormat("BMP around a JPEG or PNG is not read: send what is in it.")
    return Frame(width, abs(height), plain=bits == 24)  # negative: rows run downwards


_GIF_EXTENSION, _GIF_PICTURE, _GIF_END = 0x21, 0x2C, 0x3B


def _read_gif(data: Buffer) -> Frame:
    """The screen, or what of the first picture reaches beyond it."""
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at, in_extension = 13 + _colour_table_bytes(flags), False
    for _ in range(_SEGMENTS_MAX):
        mark = data[at]
        if in_extension:  # blocks of up to 255 bytes, ended by an empty one
            in_extension = mark > 0
            at += 1 + mark
        elif mark == _GIF_PICTURE:
            left, top, wide, high = struct.unpack_from("<HHHH", data, at + 1)
            return Frame(max(width, left + wide), max(height, top + high))
        elif mark == _GIF_END:
            break
        else:  # decoders skip stray bytes between blocks, so we do
            in_extension = mark == _GIF_EXTENSION
            at += 2 if in_extension else 1
    raise ImageCorrupt("The GIF holds no picture.")


def _colour_table_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


_READERS: Final[dict[DocumentKind, Callable[[Buffer], Frame]]] = {
    DocumentKind.JPEG: jpeg.read_frame,
    DocumentKind.PNG: _read_png,
    DocumentKind.WEBP: _read_webp,
    DocumentKind.BMP: _read_bmp,
    DocumentKind.GIF: _read_gif,
}
