"""The values that pass through this room."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hunyuan_ocr.documents.geometry import Placement


class DocumentKind(StrEnum):
    """A format, told by content; the value is its media type."""

    JPEG = "image/jpeg"
    PNG = "image/png"
    WEBP = "image/webp"
    TIFF = "image/tiff"
    BMP = "image/bmp"
    GIF = "image/gif"
    HEIC = "image/heic"
    AVIF = "image/avif"
    PDF = "application/pdf"


# HEIC is told, so that it can be refused by name.
READABLE = tuple(kind for kind in DocumentKind if kind is not DocumentKind.HEIC)


class ImageEncoding(StrEnum):
    """How pixels travel to an engine when they cannot be forwarded untouched."""

    JPEG = "image/jpeg"
    PNG = "image/png"
    BMP = "image/bmp"


@dataclass(frozen=True, slots=True)
class Document:
    """What a caller sent: its format, its bytes, and the spool file that workers read.

    `path` is set for formats of several pages, so that a worker reads only the page it needs
    and the bytes cross no pipe.
    """

    kind: DocumentKind
    data: bytes
    path: Path | None = None
    password: str | None = None


@dataclass(frozen=True, slots=True)
class PageSize:
    """Size of a page as it will be decoded, upright, in pixels."""

    width: int
    height: int

    @property
    def megapixels(self) -> float:
        return self.width * self.height / 1e6


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """What the headers say. `pages[i]` is the size of page i (0-based).

    `cut_off` says that the file ends before all its pages are there.
    """

    pages: tuple[PageSize, ...]
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class PrepareOptions:
    """How a page is made ready for one engine and task.

    The prepared image has at most `max_pixels` and at least `min_pixels` pixels. An image that
    already fits, is upright, and whose format stands in `accepts` is forwarded untouched; any
    other is encoded as `encoding`. `pdf_dpi` is the resolution PDF pages are rendered at,
    lowered where that would exceed `max_pixels`. A page of more than `max_source_megapixels` is
    refused before it is decoded.
    """

    max_pixels: int
    min_pixels: int
    encoding: ImageEncoding
    accepts: frozenset[DocumentKind] = frozenset()
    pdf_dpi: int = 200
    max_source_megapixels: float = 100.0


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """An encoded image ready for an engine; `width` and `height` in pixels."""

    data: bytes
    media_type: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class PreparedPage:
    """A page ready for an engine.

    `source` is the upright size that boxes are reported in (for PDF: the size at `pdf_dpi`),
    `placement` maps pixels of `image` back to it. `rotation_applied` is in degrees clockwise.
    """

    image: PreparedImage
    source: PageSize
    placement: Placement
    rotation_applied: int = 0
    blank: bool = False
