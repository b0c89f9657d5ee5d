"""Sizes and page counts from headers: right, bounded, and nothing allocated."""

from __future__ import annotations

import time
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hunyuan_ocr.documents import pdf
from hunyuan_ocr.documents.document import Document, DocumentInfo, DocumentKind, PageSize
from hunyuan_ocr.documents.header import Limits, read_header
from hunyuan_ocr.errors import (
    ImageCorrupt,
    ImageTooLarge,
    OcrError,
    PdfCorrupt,
    PdfEncrypted,
    TooManyPages,
    UnsupportedFormat,
)
from tests import files

LIMITS = Limits(max_megapixels=100, max_pages=50)
PICTURES = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF")


def header_of(data: bytes, kind: DocumentKind, limits: Limits = LIMITS) -> DocumentInfo:
    return read_header(Document(kind, data), limits)


@pytest.mark.parametrize("name", PICTURES)
def test_size_of_a_plain_picture(name: str) -> None:
    info = header_of(files.encoded(files.quadrants(70, 45), name), DocumentKind[name])
    assert info.pages == (PageSize(70, 45),)


@pytest.mark.parametrize(
    "options", [{"lossless": True}, {"lossless": False}, {"exif": b"Exif\0\0"}]
)
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_every_kind_of_webp(options: dict[str, object], mode: str) -> None:
    data = files.encoded(files.quadrants(70, 45).convert(mode), "WEBP", **options)
    assert header_of(data, DocumentKind.WEBP).pages == (PageSize(70, 45),)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_sizes_are_upright(name: str, orientation: int) -> None:
    data = files.oriented(files.quadrants(70, 45), name, orientation)
    assert header_of(data, DocumentKind[name]).pages == (PageSize(70, 45),)


@pytest.mark.parametrize("name", ["JPEG", "PNG"])
def test_the_first_exif_block_says_which_way_up(name: str) -> None:
    """What is too long for one segment goes on in the next, which begins alike and is no TIFF."""
    data = files.oriented(files.quadrants(70, 45), name, 6)
    again = files.with_more_exif(data, b"the rest of a long note")
    assert len(again) > len(data)
    assert header_of(again, DocumentKind[name]).pages == (PageSize(70, 45),)


@pytest.mark.parametrize("options", [{}, {"compression": "tiff_lzw"}, {"big_tiff": True}])
def test_every_page_of_a_tiff_counts(options: dict[str, object]) -> None:
    data = files.tiff_pages([files.quadrants(60 + page, 40) for page in range(5)], **options)
    pages = header_of(data, DocumentKind.TIFF).pages
    assert pages == tuple(PageSize(60 + page, 40) for page in range(5))


def test_a_thumbnail_is_no_page() -> None:
    data = files.tiff_with_thumbnail(files.quadrants(64, 48), files.quadrants(16, 12))
    assert header_of(data, DocumentKind.TIFF).pages == (PageSize(64, 48),)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (files.png_bomb(35_000, 35_000), DocumentKind.PNG),
        (files.jpeg_bomb(35_000, 35_000), DocumentKind.JPEG),
        (files.webp_bomb(), DocumentKind.WEBP),
        (files.tiff_chain(1, size=100_000), DocumentKind.TIFF),
    ],
)
def test_bombs_are_refused_and_nothing_is_allocated(data: bytes, kind: DocumentKind) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ImageTooLarge):
            header_of(data, kind)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_one_page_that_is_too_large_does_not_cost_the_others() -> None:
    data = files.tiff_pages([files.quadrants(100, 100), files.quadrants(10, 10)])
    info = header_of(data, DocumentKind.TIFF, Limits(max_megapixels=0.005, max_pages=2))
    assert info.pages == (PageSize(100, 100), PageSize(10, 10))


def test_a_cyclic_tiff_ends_where_it_began() -> None:
    assert len(header_of(files.tiff_chain(3, cyclic=True), DocumentKind.TIFF).pages) == 3


def test_a_tiff_of_a_hundred_thousand_pages_is_refused_at_once() -> None:
    data = files.tiff_chain(100_000)
    started = time.process_time()
    with pytest.raises(TooManyPages):
        header_of(data, DocumentKind.TIFF)
    assert time.process_time() - started < 0.1


@pytest.mark.parametrize("name", PICTURES)
def test_a_header_cut_short_is_corrupt(name: str) -> None:
    data = files.encoded(files.quadrants(), name)
    with pytest.raises(ImageCorrupt):
        header_of(data[:9], DocumentKind[name])


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (files.png_bomb(0, 5), DocumentKind.PNG),
        (files.jpeg_bomb(5, 0), DocumentKind.JPEG),
        (files.tiff_chain(1, size=0), DocumentKind.TIFF),
    ],
)
def test_pictures_of_nothing_are_corrupt(data: bytes, kind: DocumentKind) -> None:
    with pytest.raises(ImageCorrupt):
        header_of(data, kind)


def test_twelve_bit_jpeg_is_refused_clearly() -> None:
    with pytest.raises(UnsupportedFormat, match="12 bits"):
        header_of(files.jpeg_of_depth(12), DocumentKind.JPEG)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\xff\xd8" + b"\xff" * 3_000_000, DocumentKind.JPEG),
        (b"\xff\xd8" + b"\x00" * 3_000_000, DocumentKind.JPEG),
        (files.png_bomb(5, 5) + bytes(12) * 500_000, DocumentKind.PNG),
        (files.webp_bomb() + bytes(8) * 500_000, DocumentKind.WEBP),
        (b"GIF89a" + bytes(7) + b"!\xfe" + b"\1c" * 3_000_000, DocumentKind.GIF),
        (b"GIF89a" + bytes(7) + bytes(3_000_000), DocumentKind.GIF),
    ],
)
def test_files_of_empty_segments_take_no_time(data: bytes, kind: DocumentKind) -> None:
    started = time.process_time()
    with suppress(OcrError):
        header_of(data, kind)
    assert time.process_time() - started < 0.2


@given(
    st.sampled_from(PICTURES),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255))),
    st.data(),
)
def test_damaged_headers_never_fail_otherwise(
    name: str, damage: list[tuple[int, int]], draw: st.DataObject
) -> None:
    data = bytearray(files.encoded(files.quadrants(), name))
    for at, value in damage:
        data[at % len(data)] = value
    end = draw.draw(st.integers(0, len(data)))
    with suppress(ImageCorrupt, ImageTooLarge, TooManyPages, UnsupportedFormat):
        header_of(bytes(data[:end]), DocumentKind[name])


def pdf_header(data: bytes, password: str | None = None, limits: Limits = LIMITS) -> DocumentInfo:
    return pdf.read_header(Document(DocumentKind.PDF, data, password=password), limits)


def test_pdf_pages_are_measured_at_the_dpi() -> None:
    info = pdf_header(files.pdf_pages(3), limits=Limits(100, 50, pdf_dpi=100))
    assert info.pages == (PageSize(200, 100),) * 3


def test_a_rotated_pdf_page_is_measured_as_shown() -> None:
    assert pdf_header(files.pdf_rotated(90)).pages == (PageSize(200, 400),)


def test_pdf_refusals() -> None:
    with pytest.raises(PdfCorrupt):
        pdf_header(b"%PDF-1.7\nnothing more")
    with pytest.raises(PdfEncrypted):
        pdf_header(files.pdf_encrypted("right"))
    with pytest.raises(PdfEncrypted):
        pdf_header(files.pdf_encrypted("right"), "wrong")
    with pytest.raises(TooManyPages):
        pdf_header(files.pdf_pages(6), limits=Limits(100, 5))
    with pytest.raises(ImageTooLarge):
        pdf_header(files.pdf_pages(1, 14_000, 14_000))
    assert pdf_header(files.pdf_encrypted("right"), "right").pages == (PageSize(400, 200),)
