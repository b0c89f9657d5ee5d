"""The values that pass through this room."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from hunyuan_ocr.documents.geometry import Placement

Degrees = Literal[0, 90, 180, 270]
# How a page is turned, in degrees clockwise; `auto` looks at the page.
Orient = Literal["auto", "none", "90", "180", "270"]
# How many pixels of a page an engine is shown.
Detail = Literal["auto", "low", "high"]


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
    JP2 = "image/jp2"
    PDF = "application/pdf"


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

    def turned(self, degrees: Degrees) -> PageSize:
        """The size once the page is turned."""
        return PageSize(self.height, self.width) if degrees in (90, 270) else self


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

    A prepared image has at most `image_pixels` and at least `min_pixels` pixels. An image that
    already fits, is upright, and whose format stands in `accepts` is forwarded untouched; any
    other is encoded as `encoding`. `pdf_dpi` is the resolution PDF pages are rendered at,
    lowered where that would exceed what is shown. A page of more than `max_source_megapixels` is
    refused before it is decoded.

    `pixel_factor` is the part of the usual `max_pixels` that images get. Where a page is cut does
    not depend on it: with half of the pixels, a page in twice as many tiles would cost more.

    `orient` is the turn clockwise; `auto` finds the one that is needed. A page too long to be
    legible within `max_pixels` is cut into at most `max_tiles`; where text is read without
    places (`placed` is false) no seam may cut across lines that it could not join again.
    """

    max_pixels: int
    min_pixels: int
    encoding: ImageEncoding
    accepts: frozenset[DocumentKind] = frozenset()
    pdf_dpi: int = 200
    max_source_megapixels: float = 100.0
    orient: Orient = "none"
    max_tiles: int = 1
    placed: bool = True
    pixel_factor: float = 1.0

    @property
    def image_pixels(self) -> int:
        """The most pixels of an image: fewer than `min_pixels` a model enlarges again."""
        least = min(self.min_pixels, self.max_pixels)
        return max(least, int(self.max_pixels * self.pixel_factor))


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """An encoded image ready for an engine; `width` and `height` in pixels."""

    data: bytes
    media_type: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class PreparedTile:
    """A part of a page, or all of it; `placement` maps pixels of `image` to the page's.

    `shown` is that part, (x_min, y_min, x_max, y_max) in pixels of the page.
    """

    image: PreparedImage
    placement: Placement
    shown: tuple[float, float, float, float]


PageWarning = Literal["first_frame_only"]


@dataclass(frozen=True, slots=True)
class PreparedPage:
    """A page ready for an engine, as one tile or as several in reading order.

    `source` is the upright size that boxes are reported in (for PDF: the size at `pdf_dpi`),
    after the turn of `rotation_applied` degrees clockwise. Tiles that share rows or columns of
    the page overlap. The warning `first_frame_only` says that the file holds more pictures, like
    an animation.
    """

    tiles: tuple[PreparedTile, ...]
    source: PageSize
    rotation_applied: Degrees = 0
    blank: bool = False
    warnings: tuple[PageWarning, ...] = ()
