"""What a file is, told by its first bytes alone; names and declared types are not asked."""

from __future__ import annotations

import struct

from hunyuan_ocr.documents.document import DocumentKind
from hunyuan_ocr.errors import EmptyBody, UnsupportedFormat

_MAGIC = (
    (b"\xff\xd8\xff", DocumentKind.JPEG),
    (b"\x89PNG\r\n\x1a\n", DocumentKind.PNG),
    (b"II*\0", DocumentKind.TIFF),
    (b"MM\0*", DocumentKind.TIFF),
    (b"II+\0", DocumentKind.TIFF),
    (b"MM\0+", DocumentKind.TIFF),
    (b"GIF87a", DocumentKind.GIF),
    (b"GIF89a", DocumentKind.GIF),
)
_HEIC_BRANDS = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))
_AVIF_BRANDS = frozenset((b"avif", b"avis"))
# Two letters are weak magic: the size of the header that follows must be one that exists.
_DIB_HEADER_SIZES = frozenset((12, 16, 40, 52, 56, 64, 108, 124))
# Readers accept a PDF header anywhere in the first 1024 bytes, and real files need it.
_PDF_HEADER_WITHIN = 1024


def sniff(data: bytes) -> DocumentKind:
    """The format of `data`.

    Raises `EmptyBody` for no bytes at all, `UnsupportedFormat` for any other format.
    """
    if not data:
        raise EmptyBody
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return DocumentKind.WEBP
    if data[:2] == b"BM" and len(data) >= 18 and _u32(data, 14) in _DIB_HEADER_SIZES:
        return DocumentKind.BMP
    if data[4:8] == b"ftyp" and (kind_of_heif := _sniff_heif(data)) is not None:
        return kind_of_heif
    if b"%PDF-" in data[:_PDF_HEADER_WITHIN]:
        return DocumentKind.PDF
    raise UnsupportedFormat


def _sniff_heif(data: bytes) -> DocumentKind | None:
    """AVIF and HEIC share their container; the brands after `ftyp` tell them apart."""
    end = min(struct.unpack_from(">I", data)[0], len(data), 256)
    brands = {data[8:12], *(data[at : at + 4] for at in range(16, end, 4))}
    if brands & _AVIF_BRANDS:
        return DocumentKind.AVIF
    return DocumentKind.HEIC if brands & _HEIC_BRANDS else None


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")
