"""Kinds of files that other services were reported to read wrongly, and what is right for each.

Every picture here is `quadrants` (red, green over blue, yellow) or a dark bar on light paper,
so that a wrong turn, a wrong colour, a lost part or a picture made up by a decoder shows.
"""

from __future__ import annotations

import struct
import warnings
from io import BytesIO

import pytest
from PIL import Image, ImageCms
from pypdf import PdfReader, PdfWriter
from pypdf.annotations import FreeText
from pypdf.generic import (
    ArrayObject,
    DictionaryObject,
    FloatObject,
    NameObject,
    NumberObject,
    RectangleObject,
)

from hunyuan_ocr.documents import prepare as preparing
from hunyuan_ocr.documents.document import (
    Document,
    DocumentKind,
    ImageEncoding,
    PageSize,
    PreparedPage,
    PrepareOptions,
)
from hunyuan_ocr.documents.header import Limits, read_header
from hunyuan_ocr.documents.sniff import sniff
from hunyuan_ocr.errors import (
    ImageCorrupt,
    ImageTooLarge,
    OcrError,
    PdfCorrupt,
    UnsupportedFormat,
)
from tests import files

OPTIONS = PrepareOptions(
    max_pixels=1_000_000,
    min_pixels=1,
    encoding=ImageEncoding.PNG,
    accepts=frozenset({DocumentKind.JPEG, DocumentKind.PNG, DocumentKind.WEBP}),
)
LIMITS = Limits(max_megapixels=100, max_pages=50)
WHITE, BLACK = (255, 255, 255), (0, 0, 0)
Colour = tuple[int, int, int]


def read(data: bytes, index: int = 0) -> tuple[Image.Image, PreparedPage]:
    """Through format, header and decoder, as the service goes; the sizes must agree."""
    kind = sniff(data)
    document = Document(kind, data)
    by_library = kind in preparing.READ_IN_WORKER
    info = preparing.inspect(document, LIMITS) if by_library else read_header(document, LIMITS)
    page = preparing.prepare(document, index, OPTIONS)
    assert page.source == info.pages[index]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is forwarded is forwarded with its broken EXIF
        image = Image.open(BytesIO(page.tiles[0].image.data))
    with image:
        return image.convert("RGB"), page


def seen(data: bytes) -> Image.Image:
    return read(data)[0]


def near(found: object, colour: Colour, within: int = 12) -> bool:
    assert isinstance(found, tuple)
    return all(abs(a - b) <= within for a, b in zip(found, colour, strict=True))


def corners(image: Image.Image) -> list[Colour]:
    """Colours in the middle of the quadrants, row by row."""
    x, y = image.width // 4, image.height // 4
    at = ((x, y), (3 * x, y), (x, 3 * y), (3 * x, 3 * y))
    return [image.getpixel(point) for point in at]  # type: ignore[misc]


def assert_quadrants(image: Image.Image, within: int = 12) -> None:
    expected = (files.RED, files.GREEN, files.BLUE, files.YELLOW)
    for found, colour in zip(corners(image), expected, strict=True):
        assert near(found, colour, within), (found, colour)


def noise(mode: str = "RGB", size: tuple[int, int] = (320, 240)) -> Image.Image:
    return Image.effect_noise(size, 90).convert(mode)


# JPEG


@pytest.mark.parametrize("coding", ["arithmetic", "arithmetic-progressive", "lossless"])
def test_a_jpeg_in_a_rare_coding_is_read_and_never_forwarded(coding: str) -> None:
    """Engines have decoders of their own, which know the usual codings alone."""
    data = (files.FIXTURES / "jpeg" / f"{coding}.jpg").read_bytes()
    image, page = read(data)
    assert_quadrants(image)
    assert page.tiles[0].image.media_type == "image/png"
    with pytest.raises(ImageCorrupt):
        read(files.cut(data))


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("size", [(320, 240), (2400, 1800)], ids=["small", "drafted"])
def test_a_jpeg_whose_data_end_early_is_corrupt_though_it_ends_well(
    mode: str, size: tuple[int, int]
) -> None:
    """Decoders fill the rest with grey and report nothing: an upload that broke off."""
    whole = files.encoded(noise(mode, size), "JPEG")
    with pytest.raises(ImageCorrupt):
        read(files.cut(whole) + b"\xff\xd9")


def test_a_jpeg_whose_data_break_off_between_restart_markers_is_corrupt() -> None:
    whole = files.encoded(noise(), "JPEG", restart_marker_blocks=8)
    assert read(whole)
    with pytest.raises(ImageCorrupt):
        read(files.cut(whole) + b"\xff\xd9")


@pytest.mark.parametrize(("width", "height"), [(64, 480), (640, 48)])
def test_a_jpeg_that_claims_a_larger_size_is_corrupt(width: int, height: int) -> None:
    with pytest.raises(ImageCorrupt):
        read(files.jpeg_bomb(width, height))


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_jpeg_that_is_grey_to_its_end_is_whole(mode: str) -> None:
    image = Image.new("RGB", (64, 48), (128, 128, 128)).convert(mode)
    assert near(seen(files.encoded(image, "JPEG")).getpixel((63, 47)), (128, 128, 128), 1)


def test_a_cut_progressive_jpeg_is_corrupt() -> None:
    with pytest.raises(ImageCorrupt):
        read(files.cut(files.encoded(noise(), "JPEG", progressive=True)))


def test_bytes_behind_a_jpeg_do_no_harm() -> None:
    assert_quadrants(seen(files.encoded(files.quadrants(), "JPEG") + b"appended by a camera" * 9))


def test_a_thumbnail_inside_is_not_taken_for_the_picture() -> None:
    thumbnail = files.encoded(Image.new("RGB", (16, 12), (128, 128, 128)), "JPEG")
    block = b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0" + thumbnail
    assert_quadrants(seen(files.encoded(files.quadrants(), "JPEG", exif=block)))


def test_the_preview_in_a_phone_s_jpeg_is_neither_read_nor_a_page() -> None:
    preview = Image.new("RGB", (32, 24), BLACK)
    data = files.encoded(files.quadrants(), "MPO", save_all=True, append_images=[preview])
    image, page = read(data)
    assert_quadrants(image)
    assert page.warnings == ()


@pytest.mark.parametrize(
    "block", [b"Exif\0\0http://ns", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0", b"Exif\0\0II*\0"]
)
def test_broken_exif_is_ignored(block: bytes) -> None:
    assert_quadrants(seen(files.encoded(files.quadrants(), "JPEG", exif=block)))


def adobe(cmyk: Image.Image) -> bytes:
    """CMYK as Photoshop stores it: inverted, with Adobe's marker."""
    data = files.encoded(cmyk, "JPEG")
    assert b"Adobe" in data
    return data


def test_cmyk_of_adobe_is_not_inverted() -> None:
    assert_quadrants(seen(adobe(files.quadrants().convert("CMYK"))))


def test_ycck_is_read_as_cmyk_is() -> None:
    """The same four inks, three of them after the colour transform that the marker announces."""
    *inks, black = files.quadrants().convert("CMYK").split()
    luma = [
        channel.point(lambda level: 255 - level)  # Pillow inverts what it stores
        for channel in Image.merge("RGB", inks).convert("YCbCr").split()
    ]
    data = bytearray(adobe(Image.merge("CMYK", [*luma, black])))
    data[data.index(b"Adobe") + 11] = 2
    assert_quadrants(seen(bytes(data)), within=20)


def test_jpegs_that_no_viewer_reads_are_refused_by_name() -> None:
    plain = files.encoded(files.quadrants(), "JPEG")
    at = plain.index(b"\xff\xc0") + 1
    for marker in (0xC5, 0xC7, 0xCB, 0xF7):
        with pytest.raises(UnsupportedFormat, match="JPEG"):
            read(plain[:at] + bytes([marker]) + plain[at + 1 :])
    with pytest.raises(UnsupportedFormat, match="12 bits"):
        read(files.jpeg_of_depth(12))


# Colour and transparency


def swapped_profile() -> bytes:
    """sRGB's profile with the tags of red and green exchanged: a plain case of other primaries."""
    data = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    red, green = data.index(b"rXYZ", 128), data.index(b"gXYZ", 128)
    data[red : red + 4], data[green : green + 4] = b"gXYZ", b"rXYZ"
    name = data.index("sRGB".encode("utf-16-be"))
    data[name : name + 8] = "wide".encode("utf-16-be")
    return bytes(data)


@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_profile_says_what_the_colours_are(name: str) -> None:
    lossless = {"lossless": True} if name == "WEBP" else {}
    data = files.encoded(files.quadrants(), name, icc_profile=swapped_profile(), **lossless)
    red, green, *_ = corners(seen(data))
    assert red[1] > 150 > red[0]
    assert green[0] > 120 > green[1]


@pytest.mark.parametrize(
    "profile",
    [
        b"no profile at all",
        bytes(500),
        swapped_profile()[:200],
        swapped_profile().replace(b"RGB ", b"GRAY"),
        swapped_profile().replace(b"RGB ", b"CMYK"),
    ],
)
def test_a_broken_profile_is_ignored(profile: bytes) -> None:
    assert_quadrants(seen(files.encoded(files.quadrants(), "PNG", icc_profile=profile)))


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_grey_with_transparency_is_read(mode: str) -> None:
    glyph = Image.new(mode, (60, 40), (0,) * len(mode))
    glyph.paste((0,) * (len(mode) - 1) + (255,), (20, 10, 40, 30))
    image = seen(files.encoded(glyph, "PNG"))
    assert image.getpixel((2, 2)) == WHITE
    assert image.getpixel((30, 20)) == BLACK


def test_a_picture_that_is_transparent_all_over_shows_its_colours() -> None:
    """Writers that know no transparency leave the fourth channel at nothing."""
    image = files.quadrants().convert("RGBA")
    image.putalpha(0)
    assert_quadrants(seen(files.encoded(image, "PNG")))


def test_white_glyphs_in_a_transparent_palette_stay_visible() -> None:
    image = Image.new("P", (60, 40), 0)
    image.putpalette([255, 255, 255, 255, 255, 255])
    image.paste(1, (20, 10, 40, 30))
    shown = seen(files.encoded(image, "PNG", transparency=0))
    assert shown.getpixel((2, 2)) != shown.getpixel((30, 20))


def test_a_picture_in_black_and_white_keeps_thin_strokes_when_shrunk() -> None:
    """Sampled instead of averaged, every second line of one pixel would be gone."""
    image = Image.new("1", (3000, 2000), 1)
    for x in range(0, 3000, 10):
        image.paste(0, (x, 0, x + 1, 2000))
    grey = seen(files.encoded(image, "TIFF", compression="group4")).convert("L")
    row = grey.crop((200, 100, 260, 101)).tobytes()
    assert sum(level < 250 for level in row) >= 18  # a stroke every four pixels, none lost


# TIFF


def tiff_of(samples: bytes, bits: int, *tags: tuple[int, int], order: str = "<") -> bytes:
    """A grey 40 x 40 TIFF in one strip, with more tags or other values than usual."""
    fields = {256: 40, 257: 40, 258: bits, 259: 1, 262: 1, 273: 0, 277: 1, 278: 40}
    fields |= {279: len(samples), **dict(tags)}
    fields[273] = 8 + 2 + 12 * len(fields) + 4
    entries = b"".join(
        struct.pack(order + "HHII", tag, 4, 1, fields[tag]) for tag in sorted(fields)
    )
    head = struct.pack(order + "2sHIH", b"II" if order == "<" else b"MM", 42, 8, len(fields))
    return head + entries + bytes(4) + samples


def bar(paper: float, ink: float, layout: str, order: str = "<") -> bytes:
    """Numbers of paper with a bar of ink across the middle."""
    levels = [paper] * 400 + [ink] * 800 + [paper] * 400
    return struct.pack(f"{order}1600{layout}", *levels)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("layout", "bits", "paper", "ink", "tags"),
    [
        ("H", 16, 65_535, 0, ()),
        ("B", 8, 0, 255, ((262, 0),)),
        ("i", 32, 70_000, -70_000, ((339, 2),)),
        ("f", 32, 1.0, 0.0, ((339, 3),)),
        ("f", 32, 4000.0, -10.0, ((339, 3),)),
    ],
)
def test_tiffs_of_every_depth_show_dark_ink_on_light_paper(
    order: str, layout: str, bits: int, paper: float, ink: float, tags: tuple[tuple[int, int], ...]
) -> None:
    image = seen(tiff_of(bar(paper, ink, layout, order), bits, *tags, order=order))
    assert near(image.getpixel((20, 3)), WHITE, 2)
    assert near(image.getpixel((20, 20)), BLACK, 2)


@pytest.mark.parametrize(
    ("layout", "bits", "paper", "ink", "tags"),
    [
        ("H", 16, 0, 65_535, ((262, 0),)),  # white is zero, as faxes have it
        ("I", 32, 2**32 - 1, 0, ((339, 1),)),  # beyond what signed numbers hold
    ],
)
def test_deep_tiffs_are_read_or_refused_and_never_inverted(
    layout: str, bits: int, paper: float, ink: float, tags: tuple[tuple[int, int], ...]
) -> None:
    image = seen(tiff_of(bar(paper, ink, layout), bits, *tags))
    assert near(image.getpixel((20, 3)), WHITE, 2)
    assert near(image.getpixel((20, 20)), BLACK, 2)
    with pytest.raises(UnsupportedFormat, match="TIFF"):
        read(tiff_of(bar(paper, ink, layout, ">"), bits, *tags, order=">"))


@pytest.mark.parametrize("nonsense", [float("nan"), float("inf")])
def test_floats_that_are_no_numbers_are_corrupt(nonsense: float) -> None:
    with pytest.raises(ImageCorrupt):
        read(tiff_of(bar(nonsense, 0.0, "f"), 32, (339, 3)))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (tiff_of(bytes(100), 8, (259, 50001)), "compression 50001"),
        (tiff_of(bytes(100), 8, (259, 34712)), "TIFF"),
        (tiff_of(bytes(12_800), 64, (339, 3)), "TIFF"),
        (tiff_of(bytes(1600), 8, (339, 2)), "signed"),
    ],
)
def test_tiffs_that_would_be_misread_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(UnsupportedFormat, match=said):
        read(data)


@pytest.mark.parametrize(
    "compression", ["group3", "group4", "packbits", "tiff_lzw", "jpeg", "zstd"]
)
def test_every_compression_of_scanners(compression: str) -> None:
    one_bit = compression.startswith("group")
    drawn = Image.new("L", (64, 48), 255)
    drawn.paste(0, (0, 16, 64, 32))
    stored = drawn.convert("1" if one_bit else "RGB")
    image = seen(files.encoded(stored, "TIFF", compression=compression))
    assert near(image.getpixel((30, 3)), WHITE)
    assert near(image.getpixel((30, 24)), BLACK)


def test_pages_of_a_tiff_may_differ_in_size_and_kind() -> None:
    first, second = files.quadrants(64, 48), Image.new("1", (40, 90), 0)
    data = files.tiff_pages([first, second, first.convert("CMYK")])
    assert_quadrants(read(data, 0)[0])
    assert read(data, 1)[0].size == (40, 90)
    assert_quadrants(read(data, 2)[0])


# GIF, BMP and other small formats


def with_screen(width: int, height: int) -> bytes:
    data = bytearray(files.encoded(files.quadrants(), "GIF"))
    struct.pack_into("<HH", data, 6, width, height)
    return bytes(data)


@pytest.mark.parametrize("screen", [(0, 0), (20, 10), (64, 10)])
def test_a_gif_larger_than_its_screen_is_read_whole(screen: tuple[int, int]) -> None:
    image, page = read(with_screen(*screen))
    assert page.source == PageSize(64, 48)
    assert_quadrants(image)


def test_a_gif_with_comments_before_its_picture_is_read() -> None:
    data = files.encoded(files.quadrants(), "GIF", comment=b"made by a scanner " * 40)
    assert b"made by" in data
    assert_quadrants(seen(data))


def test_a_png_from_an_iphone_app_is_refused_by_name() -> None:
    data = files.encoded(files.quadrants(), "PNG")
    with pytest.raises(UnsupportedFormat, match="iPhone"):
        read(data[:8] + b"\0\0\0\4CgBI\x50\0\x20\2\x2b\xd5\xb3\x7f" + data[8:])


def test_a_gif_smaller_than_its_screen_lies_where_it_belongs() -> None:
    image, page = read(with_screen(200, 100))
    assert page.source == PageSize(200, 100)
    assert_quadrants(image.crop((0, 0, 64, 48)))


@pytest.mark.parametrize("name", ["GIF", "PNG", "WEBP", "AVIF"])
def test_an_animation_gives_its_first_picture_and_says_so(name: str) -> None:
    second = Image.new("RGB", (64, 48), BLACK)
    lossless = {"lossless": True} if name == "WEBP" else {}
    data = files.encoded(files.quadrants(), name, save_all=True, append_images=[second], **lossless)
    image, page = read(data)
    assert_quadrants(image)
    assert page.warnings == ("first_frame_only",)
    assert read(files.encoded(files.quadrants(), name, **lossless))[1].warnings == ()


def bmp(header_bytes: int, bits: int, rows: bytes, **fields: int) -> bytes:
    """A BMP of 64 x 48 with `rows` as they are."""
    offset = 14 + header_bytes
    height, compression = fields.get("height", 48), fields.get("compression", 0)
    if header_bytes == 12:
        header = struct.pack("<IHHHH", 12, 64, height, 1, bits)
    else:
        known = struct.pack(
            "<IiiHHIIiiII", header_bytes, 64, height, 1, bits, compression, len(rows), 0, 0, 0, 0
        )
        masks = struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
        header = (known + masks + bytes(header_bytes))[:header_bytes]
    head = struct.pack("<2sIHHI", b"BM", offset + len(rows), 0, 0, offset)
    return head + header + rows


def rows_of(mode: str, *, downwards: bool = False) -> bytes:
    image = files.quadrants()
    if not downwards:
        image = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    return image.tobytes("raw", mode)


@pytest.mark.parametrize(
    "data",
    [
        bmp(12, 24, rows_of("BGR")),
        bmp(40, 24, rows_of("BGR")),
        bmp(64, 24, rows_of("BGR")),
        bmp(108, 24, rows_of("BGR")),
        bmp(124, 24, rows_of("BGR")),
        bmp(40, 24, rows_of("BGR", downwards=True), height=-48),
        bmp(40, 32, rows_of("BGRX")),
        bmp(108, 32, rows_of("BGRX").replace(b"\xff", b"\0"), compression=3),  # alpha of nothing
        files.encoded(files.quadrants().quantize(4), "BMP"),
    ],
)
def test_every_header_of_bmp(data: bytes) -> None:
    assert_quadrants(seen(data))


def test_runs_in_a_bmp_are_undone() -> None:
    palette = bytes((*files.BLUE[::-1], 0)) * 256
    runs = b"".join(b"\x40\x01\0\0" for _ in range(48)) + b"\0\1"
    data = bytearray(bmp(40, 8, palette + runs, compression=1))
    struct.pack_into("<I", data, 10, 54 + len(palette))
    assert near(seen(bytes(data)).getpixel((60, 40)), files.BLUE, 0)
    with pytest.raises(ImageCorrupt):
        read(bytes(data[:-80]))


def test_a_bmp_around_another_format_is_refused() -> None:
    with pytest.raises(UnsupportedFormat, match="BMP"):
        read(bmp(40, 0, files.encoded(files.quadrants(), "JPEG"), compression=4))


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (files.encoded(files.quadrants(), "ICO"), "icon"),
        (files.encoded(files.quadrants(), "PPM"), "PNM"),
        (b"8BPS\0\1" + bytes(100), "Photoshop"),
        (b"\xff\x0a" + bytes(100), "JPEG XL"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
        (b"<!DOCTYPE html><html><body>Not found</body></html>", "web page"),
        (b"PK\3\4" + bytes(100), "ZIP"),
        (b"%!PS-Adobe-3.0 EPSF-3.0", "PostScript"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom", "video"),
    ],
)
def test_what_is_not_read_is_refused_by_its_name(data: bytes, name: str) -> None:
    with pytest.raises(UnsupportedFormat, match=name):
        read(data)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_jpeg_2000_of_archives_is_read(mode: str) -> None:
    data = files.encoded(files.quadrants().convert(mode), "JPEG2000")
    image = seen(data)
    if mode == "L":
        assert image.size == (64, 48)
    else:
        assert_quadrants(image)
    with pytest.raises(ImageCorrupt):
        read(files.cut(files.encoded(noise(), "JPEG2000")))


# HEIC


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photos_of_phones_stand_upright(orientation: int) -> None:
    image, page = read(files.heic(f"orientation-{orientation}"))
    assert page.source == PageSize(96, 64)
    assert_quadrants(image, within=20)


def test_the_other_pictures_of_a_heic_are_announced() -> None:
    image, page = read(files.heic("two-pictures"))
    assert_quadrants(image, within=20)
    assert page.warnings == ("first_frame_only",)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_cut_heic_is_corrupt(share: float) -> None:
    with pytest.raises(ImageCorrupt):
        read(files.cut(files.heic(), share))


def test_a_heic_cut_inside_its_last_tile_is_corrupt_and_not_a_picture_with_a_hole() -> None:
    whole = files.heic()
    media = whole.index(b"mdat") - 4
    longer = struct.pack(">I", len(whole) - media + 100) + whole[media + 4 :]
    with pytest.raises(ImageCorrupt, match="early"):
        read(whole[:media] + longer)
    assert read(whole[:media] + longer + bytes(100))


def test_a_heic_that_claims_a_vast_or_wrong_size_is_refused() -> None:
    data = bytearray(files.heic())
    at = data.index(b"ispe") + 8
    struct.pack_into(">II", data, at, 30_000, 30_000)
    with pytest.raises(ImageTooLarge):
        read(bytes(data))
    struct.pack_into(">II", data, at, 30, 20)
    with pytest.raises(ImageCorrupt):
        read(bytes(data))


# PDF


def edited(**page: object) -> bytes:
    """A PDF of one page with entries of the page's dictionary put in place of its own."""
    writer = PdfWriter(clone_from=PdfReader(BytesIO(files.pdf_pages(1))))
    for name, value in page.items():
        writer.pages[0][NameObject(f"/{name}")] = value
    return written(writer)


def written(writer: PdfWriter) -> bytes:
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


def box(*corners: float) -> RectangleObject:
    return RectangleObject(corners)


@pytest.mark.parametrize(
    ("data", "size", "black_at"),
    [
        (edited(MediaBox=box(144, 72, 0, 0)), (400, 200), (10, 10)),
        (edited(MediaBox=box(-36, -36, 180, 108)), (600, 400), (110, 110)),
        (edited(CropBox=box(9, 36, 81, 72)), (200, 100), (10, 10)),
        (edited(CropBox=box(9, 36, 999, 999)), (375, 100), (10, 10)),
        (edited(CropBox=box(9, 36, 81, 72), Rotate=NumberObject(90)), (100, 200), (90, 10)),
        (edited(Rotate=NumberObject(-90)), (200, 400), (10, 390)),
        (edited(Rotate=NumberObject(450)), (200, 400), (190, 10)),
        (edited(MediaBox=box(0, 0, 144, 72), UserUnit=FloatObject(1)), (400, 200), (10, 10)),
    ],
)
def test_pages_are_seen_through_their_boxes(
    data: bytes, size: tuple[int, int], black_at: tuple[int, int]
) -> None:
    image, page = read(data)
    assert (page.source.width, page.source.height) == image.size == size
    assert near(image.getpixel(black_at), BLACK, 2)


def test_boxes_may_be_inherited() -> None:
    writer = PdfWriter(clone_from=PdfReader(BytesIO(files.pdf_pages(2))))
    for page in writer.pages:
        page.pop("/MediaBox")
        parent = page["/Parent"].get_object()
        assert isinstance(parent, DictionaryObject)
        parent[NameObject("/MediaBox")] = box(0, 0, 144, 72)
    assert read(written(writer), 1)[1].source == PageSize(400, 200)


@pytest.mark.parametrize("side", [14_400, 1e9])
def test_vast_pages_are_too_large(side: float) -> None:
    with pytest.raises(ImageTooLarge):
        read(edited(MediaBox=box(0, 0, side, side)))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda pdf: pdf[: pdf.rindex(b"startxref")],
        lambda pdf: pdf[: pdf.rindex(b"startxref")] + b"startxref\n99999\n%%EOF",
        lambda pdf: pdf.replace(b"xref\n0", b"xxxx\n0", 1),
        lambda pdf: b"HTTP/1.1 200 OK\r\n\r\n" + pdf,
        lambda pdf: pdf + bytes(5000),
    ],
    ids=["no startxref", "wrong startxref", "no table", "bytes before", "bytes behind"],
)
def test_pdfs_that_viewers_repair_are_read(spoil: object) -> None:
    assert callable(spoil)
    image, _ = read(spoil(files.pdf_pages(1)))
    assert near(image.getpixel((10, 10)), BLACK, 2)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_cut_pdf_is_corrupt(share: float) -> None:
    with pytest.raises(PdfCorrupt):
        read(files.cut(files.pdf_pages(3), share))


def test_a_pdf_without_pages_is_corrupt() -> None:
    with pytest.raises(PdfCorrupt):
        read(written(PdfWriter()))


def test_a_pdf_with_an_owner_s_password_alone_opens_without_one() -> None:
    writer = PdfWriter(clone_from=PdfReader(BytesIO(files.pdf_pages(1))))
    writer.encrypt("", "owner", algorithm="RC4-128")
    assert near(seen(written(writer)).getpixel((10, 10)), BLACK, 2)


def test_a_password_may_hold_any_letter() -> None:
    document = Document(DocumentKind.PDF, files.pdf_encrypted("schlüssel"), password="schlüssel")
    assert preparing.inspect(document, LIMITS).pages == (PageSize(400, 200),)


def strokes(image: Image.Image) -> int:
    """How many pixels are dark."""
    return sum(image.convert("L").histogram()[:60])


def test_a_filled_form_is_drawn_without_a_stored_appearance_too() -> None:
    writer = PdfWriter(clone_from=PdfReader(BytesIO(files.pdf_form("HHH"))))
    fields = writer.pages[0]["/Annots"]
    assert isinstance(fields, ArrayObject)
    for field in fields:
        assert field.get_object().pop("/AP")
    assert strokes(seen(written(writer))) > 100


def test_text_that_a_reader_put_on_the_page_is_drawn() -> None:
    writer = PdfWriter(clone_from=PdfReader(BytesIO(files.pdf_pages(1))))
    note = FreeText(text="PAID", rect=(20, 10, 130, 50), font_size="30pt", font_color="000000")
    writer.add_annotation(0, note)
    assert strokes(seen(written(writer))) > strokes(seen(files.pdf_pages(1))) + 100


def test_nothing_but_a_refusal_comes_of_a_name_that_lies() -> None:
    """The declared name and type are not asked: a GIF sent as JPEG is a GIF."""
    assert sniff(files.encoded(files.quadrants(), "GIF")) is DocumentKind.GIF
    assert sniff(files.heic()) is DocumentKind.HEIC
    with pytest.raises(OcrError):
        read(b"\xff\xd8\xff" + files.encoded(files.quadrants(), "GIF"))
