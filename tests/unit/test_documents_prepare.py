"""Pixels: upright, whole, with their colours, at the right size; or the right refusal."""

from __future__ import annotations

import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from hunyuan_ocr.documents.document import (
    Document,
    DocumentKind,
    ImageEncoding,
    PageSize,
    PreparedImage,
    PrepareOptions,
)
from hunyuan_ocr.documents.header import Limits
from hunyuan_ocr.documents.prepare import inspect, prepare, spooled
from hunyuan_ocr.errors import (
    ImageCorrupt,
    ImageTooLarge,
    PageOutOfRange,
    PdfCorrupt,
    PdfEncrypted,
)
from tests import files

ENCODE = PrepareOptions(max_pixels=1_000_000, min_pixels=1, encoding=ImageEncoding.PNG)
ANY = frozenset(DocumentKind)
FORWARD = PrepareOptions(
    max_pixels=1_000_000, min_pixels=1, encoding=ImageEncoding.PNG, accepts=ANY
)
Colour = tuple[int, int, int]


def pixels(image: PreparedImage) -> Image.Image:
    with Image.open(BytesIO(image.data)) as opened:
        assert opened.size == (image.width, image.height)
        assert Image.MIME[str(opened.format)] == image.media_type
        return opened.convert("RGB")


def prepared(data: bytes, kind: DocumentKind, options: PrepareOptions = ENCODE) -> Image.Image:
    return pixels(prepare(Document(kind, data), 0, options).tiles[0].image)


def is_near(image: Image.Image, at: tuple[int, int], colour: Colour, within: int = 30) -> bool:
    found = image.getpixel(at)
    assert isinstance(found, tuple)
    return all(abs(a - b) <= within for a, b in zip(found, colour, strict=True))


def assert_upright(image: Image.Image) -> None:
    right, bottom = image.width * 7 // 8, image.height * 7 // 8
    assert is_near(image, (image.width // 8, image.height // 8), files.RED)
    assert is_near(image, (right, image.height // 8), files.GREEN)
    assert is_near(image, (image.width // 8, bottom), files.BLUE)
    assert is_near(image, (right, bottom), files.YELLOW)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("options", [ENCODE, FORWARD], ids=["encode", "forward"])
def test_pictures_stand_upright(name: str, orientation: int, options: PrepareOptions) -> None:
    document = Document(
        DocumentKind[name], files.oriented(files.quadrants(96, 64), name, orientation)
    )
    page = prepare(document, 0, options)
    assert page.source == PageSize(96, 64)
    assert (page.tiles[0].image.width, page.tiles[0].image.height) == (96, 64)
    image = pixels(page.tiles[0].image)
    assert_upright(image)
    assert image.getexif().get(files.ORIENTATION, 1) == 1


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_jpeg_is_shrunk_and_boxes_map_back(orientation: int) -> None:
    upright = files.quadrants(1600, 1200)
    document = Document(DocumentKind.JPEG, files.oriented(upright, "JPEG", orientation))
    page = prepare(document, 0, PrepareOptions(100_000, 1, ImageEncoding.JPEG))
    assert page.source == PageSize(1600, 1200)
    assert 90_000 < page.tiles[0].image.width * page.tiles[0].image.height <= 100_000
    image = pixels(page.tiles[0].image)
    assert_upright(image)
    x, y = page.tiles[0].placement.to_prepared((800, 600))  # where the four colours meet
    assert is_near(image, (int(x) - 4, int(y) - 4), files.RED)
    assert is_near(image, (int(x) + 4, int(y) + 4), files.YELLOW)


@pytest.mark.parametrize(
    ("name", "mode"), [("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGB"), ("PNG", "L")]
)
def test_what_needs_no_change_is_forwarded(name: str, mode: str) -> None:
    data = files.encoded(files.quadrants().convert(mode), name)
    image = prepare(Document(DocumentKind[name], data), 0, FORWARD).tiles[0].image
    assert image.data == data
    assert image.media_type == DocumentKind[name].value


@pytest.mark.parametrize("options", [ENCODE, FORWARD], ids=["encode", "forward"])
@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "AVIF"])
def test_cut_pictures_are_corrupt(name: str, options: PrepareOptions) -> None:
    noisy = Image.effect_noise((80, 60), 90).convert("RGB")
    with pytest.raises(ImageCorrupt):
        prepared(files.cut(files.encoded(noisy, name)), DocumentKind[name], options)


def test_an_avif_with_broken_contents_is_corrupt() -> None:
    data = bytearray(files.encoded(files.quadrants(), "AVIF"))
    at = data.index(b"mdat") + 4
    data[at:] = b"\xff" * (len(data) - at)
    with pytest.raises(ImageCorrupt):
        prepared(bytes(data), DocumentKind.AVIF)


def test_contradicting_headers_are_corrupt() -> None:
    with pytest.raises(ImageCorrupt):
        prepared(files.png_bomb(50, 50), DocumentKind.PNG, FORWARD)


@pytest.mark.parametrize("data", [files.png_bomb(35_000, 35_000)])
def test_bombs_are_refused_before_decode(data: bytes) -> None:
    with pytest.raises(ImageTooLarge):
        prepared(data, DocumentKind.PNG)


def grey16(background: int, ink: int) -> Image.Image:
    # Built from bytes: Pillow's paste repeats the low byte in this mode.
    paper, row = [background] * 40, [background] * 10 + [ink] * 20 + [background] * 10
    levels = paper * 10 + row * 20 + paper * 10
    return Image.frombytes("I;16", (40, 40), struct.pack("<1600H", *levels))


def deep(mode: str, background: float, ink: float) -> Image.Image:
    image = Image.new(mode, (40, 40), background)
    image.paste(ink, (10, 10, 30, 30))
    return image


@pytest.mark.parametrize(
    ("image", "name", "paper", "ink"),
    [
        (grey16(65_535, 0), "PNG", 255, 0),
        (grey16(40_000, 1_000), "PNG", 155, 3),
        (grey16(4_095, 0), "TIFF", 255, 0),
        (deep("F", 1.0, 0.0), "TIFF", 255, 0),
        (deep("F", 255.0, 20.0), "TIFF", 255, 20),
        (deep("I", 2_000_000_000, 1_000), "TIFF", 255, 0),
        (deep("1", 1, 0), "TIFF", 255, 0),
        (deep("1", 1, 0), "PNG", 255, 0),
    ],
)
def test_every_depth_keeps_its_greys(image: Image.Image, name: str, paper: int, ink: int) -> None:
    result = prepared(files.encoded(image, name), DocumentKind[name])
    assert is_near(result, (2, 2), (paper,) * 3, within=2)
    assert is_near(result, (20, 20), (ink,) * 3, within=2)


@pytest.mark.parametrize("mode", ["CMYK", "P", "YCbCr"])
def test_colours_survive_other_colour_spaces(mode: str) -> None:
    name = "PNG" if mode == "P" else "JPEG"
    quadrants = files.quadrants()
    stored = quadrants.quantize(4) if mode == "P" else quadrants.convert(mode)
    image = prepared(files.encoded(stored, name), DocumentKind[name])
    assert_upright(image)


def glyph_on_nothing(colour: Colour, **save: Any) -> bytes:
    image = Image.new("RGBA", (60, 40), (*colour, 0))
    ImageDraw.Draw(image).rectangle((20, 10, 30, 30), fill=(*colour, 255))
    return files.encoded(image, "PNG", **save)


@pytest.mark.parametrize(
    ("glyph", "background"), [((255, 255, 255), (0, 0, 0)), ((0, 0, 0), (255, 255, 255))]
)
def test_transparent_pictures_get_a_background_that_contrasts(
    glyph: Colour, background: Colour
) -> None:
    image = prepared(glyph_on_nothing(glyph), DocumentKind.PNG, FORWARD)
    assert image.getpixel((2, 2)) == background
    assert image.getpixel((25, 20)) == glyph


def test_a_palette_with_transparency_is_composited_too() -> None:
    image = Image.new("P", (60, 40), 0)
    image.putpalette([255, 0, 0, 0, 0, 0])
    image.paste(1, (20, 10, 30, 30))
    result = prepared(files.encoded(image, "PNG", transparency=0), DocumentKind.PNG, FORWARD)
    assert result.getpixel((2, 2)) == (255, 255, 255)
    assert result.getpixel((25, 20)) == (0, 0, 0)


async def test_every_page_of_a_tiff_is_reached(tmp_path: Path) -> None:
    colours = [(200, 0, 0), (0, 200, 0), (0, 0, 200)]
    data = files.tiff_pages([Image.new("RGB", (30, 30), colour) for colour in colours])
    async with spooled(Document(DocumentKind.TIFF, data), tmp_path) as document:
        by_path = Document(DocumentKind.TIFF, b"", document.path)
        for index, colour in enumerate(colours):
            assert pixels(prepare(by_path, index, ENCODE).tiles[0].image).getpixel((5, 5)) == colour
        with pytest.raises(PageOutOfRange):
            prepare(by_path, 3, ENCODE)


def spooled_file(document: Document) -> tuple[bytes, int]:
    """Its bytes and its permissions."""
    assert document.path is not None
    return document.path.read_bytes(), document.path.stat().st_mode & 0o777


async def test_the_spool_file_is_private_and_removed(tmp_path: Path) -> None:
    async def use() -> None:
        async with spooled(Document(DocumentKind.PDF, b"abc"), tmp_path) as document:
            assert spooled_file(document) == (b"abc", 0o600)
            raise KeyError

    with pytest.raises(KeyError):
        await use()
    assert list(tmp_path.iterdir()) == []


def test_avif_headers_are_read() -> None:
    data = files.encoded(files.quadrants(70, 45), "AVIF")
    info = inspect(Document(DocumentKind.AVIF, data), Limits(100, 5))
    assert info.pages == (PageSize(70, 45),)


def pdf_page(data: bytes, index: int = 0, **options: int) -> tuple[Image.Image, PageSize]:
    values: dict[str, Any] = {"max_pixels": 1_000_000, "min_pixels": 1, **options}
    chosen = PrepareOptions(encoding=ImageEncoding.PNG, **values)
    page = prepare(Document(DocumentKind.PDF, data), index, chosen)
    return pixels(page.tiles[0].image), page.source


def test_a_pdf_page_is_drawn_at_the_dpi_and_below_the_limit() -> None:
    image, source = pdf_page(files.pdf_pages(2), 1)
    assert source == PageSize(*image.size) == PageSize(400, 200)
    assert is_near(image, (300, 100), files.page_colour(1), within=2)
    assert image.getpixel((10, 10)) == (0, 0, 0)
    image, source = pdf_page(files.pdf_pages(2), 1, max_pixels=20_000)
    assert source == PageSize(400, 200)
    assert image.size == (200, 100)
    assert image.getpixel((10, 10)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("degrees", "size", "corner"),
    [(0, (400, 200), (10, 10)), (90, (200, 400), (190, 10)), (180, (400, 200), (390, 190)),
     (270, (200, 400), (10, 390))],
)  # fmt: skip
def test_pdf_rotation_is_respected(
    degrees: int, size: tuple[int, int], corner: tuple[int, int]
) -> None:
    image, _ = pdf_page(files.pdf_rotated(degrees))
    assert image.size == size
    assert image.getpixel(corner) == (0, 0, 0)


def test_pdf_form_fields_are_drawn() -> None:
    image, _ = pdf_page(files.pdf_form("HHH"))
    assert (
        sum(image.convert("L").histogram()[:60]) > 100
    )  # the strokes of the value, on paper that is white without them


@pytest.mark.parametrize(
    ("data", "index", "error"),
    [
        (lambda: b"%PDF-1.4 rubbish", 0, PdfCorrupt),
        (lambda: files.pdf_encrypted("x"), 0, PdfEncrypted),
        (lambda: files.pdf_pages(1), 1, PageOutOfRange),
        (lambda: files.pdf_pages(1, 14_000, 14_000), 0, ImageTooLarge),
    ],
)
def test_pdf_refusals(data: Callable[[], bytes], index: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        pdf_page(data(), index)
