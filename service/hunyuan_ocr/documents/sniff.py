"""What a file is, told by its first bytes alone; names and declared types are not asked."""

from __future__ import annotations

import struct
from typing import Final

from hunyuan_ocr.documents.document import DocumentKind
from hunyuan_ocr.errors import EmptyBody, UnsupportedFormat

_MAGIC: Final = (
    (b"\xff\xd8\xff", DocumentKind.JPEG),
    (b"\x89PNG\r\n\x1a\n", DocumentKind.PNG),
    (b"II*\0", DocumentKind.TIFF),
    (b"MM\0*", DocumentKind.TIFF),
    (b"II+\0", DocumentKind.TIFF),
    (b"MM\0+", DocumentKind.TIFF),
    (b"GIF87a", DocumentKind.GIF),
    (b"GIF89a", DocumentKind.GIF),
    (b"\0\0\0\x0cjP  \r\n\x87\n", DocumentKind.JP2),
    (b"\xff\x4f\xff\x51", DocumentKind.JP2),
)
# Formats that people send and that are not read, so that they learn what it was they sent.
_OTHERS: Final = (
    (b"\0\0\1\0", "an icon (ICO)"),
    (b"\0\0\2\0", "a cursor (CUR) or a Targa image"),
    (b"icns", "an icon (ICNS)"),
    (b"8BPS", "a Photoshop file"),
    (b"gimp xcf", "a GIMP file"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    (b"II\xbc\x01", "JPEG XR"),
    (b"AT&TFORM", "DjVu"),
    (b"DDS ", "a texture (DDS)"),
    (b"qoif", "QOI"),
    (b"\x97JB2\r\n\x1a\n", "JBIG2"),
    (b"\x0a\x05\x01\x08", "PCX"),
    (b"%!PS", "PostScript"),
    (b"\xc5\xd0\xd3\xc6", "PostScript (EPS)"),
    (b"\xd7\xcd\xc6\x9a", "a Windows metafile"),
    (b"\x89MNG", "MNG"),
    (b"PK\3\4", "a ZIP archive or an office document"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!", "a RAR archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old office document"),
    (b"{\\rtf", "RTF"),
    (b"\x1aE\xdf\xa3", "a video"),
)
_PNM_DIGITS: Final = tuple(b"%d" % digit for digit in range(1, 8))
_HEIC_BRANDS: Final = frozenset(
    (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
)
_AVIF_BRANDS: Final = frozenset((b"avif", b"avis"))
# Two letters are weak magic: the size of the header that follows must be one that exists.
_DIB_HEADER_SIZES: Final = frozenset((12, 40, 52, 56, 64, 108, 124))
# Readers accept a PDF header anywhere in the first 1024 bytes, and real files need it.
_PDF_HEADER_WITHIN: Final = 1024
_MARKUP_WITHIN: Final = 1024


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
    name = _name_of_other(data)
    raise UnsupportedFormat(f"This is {name}, which is not read." if name else "")


def _sniff_heif(data: bytes) -> DocumentKind | None:
    """AVIF and HEIC share their container; the brands after `ftyp` tell them apart."""
    end = min(struct.unpack_from(">I", data)[0], len(data), 256)
    brands = {data[8:12], *(data[at : at + 4] for at in range(16, end, 4))}
    if brands & _AVIF_BRANDS:
        return DocumentKind.AVIF
    return DocumentKind.HEIC if brands & _HEIC_BRANDS else None


def _name_of_other(data: bytes) -> str | None:
    for magic, name in _OTHERS:
        if data.startswith(magic):
            return name
    if data[:1] == b"P" and data[1:2] in _PNM_DIGITS and data[2:3].isspace():
        return "a PNM image"
    if data[4:8] == b"ftyp":
        return "a video"
    start = data[:_MARKUP_WITHIN].lower()
    if b"<svg" in start:
        return "an SVG drawing"
    return "a web page" if b"<html" in start or b"<!doctype html" in start else None


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")
