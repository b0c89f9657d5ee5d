"""Builders of test files in every format, whole, cut short and hostile."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from PIL import Image, TiffImagePlugin
from pypdf import PdfReader, PdfWriter
from reportlab.pdfgen.canvas import Canvas

FIXTURES = Path(__file__).parent / "fixtures"
RED, GREEN, BLUE, YELLOW = (220, 20, 20), (20, 180, 20), (20, 20, 220), (220, 220, 20)
ORIENTATION = 0x0112


def quadrants(width: int = 64, height: int = 48) -> Image.Image:
    """Red, green over blue, yellow: any flip or turn shows."""
    image = Image.new("RGB", (width, height))
    half_width, half_height = width // 2, height // 2
    image.paste(RED, (0, 0, half_width, half_height))
    image.paste(GREEN, (half_width, 0, width, half_height))
    image.paste(BLUE, (0, half_height, half_width, height))
    image.paste(YELLOW, (half_width, half_height, width, height))
    return image


# What a camera held in each of the eight ways stores for an upright picture.
_STORED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def oriented(upright: Image.Image, image_format: str, orientation: int) -> bytes:
    """`upright` stored so that only a reader of its orientation tag sees it upright."""
    method = _STORED[orientation]
    stored = upright if method is None else upright.transpose(method)
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    if image_format == "TIFF":
        return encoded(stored, "TIFF", tiffinfo={ORIENTATION: orientation})
    lossless = {"lossless": True} if image_format == "WEBP" else {}
    return encoded(stored, image_format, exif=exif, **lossless)


def with_more_exif(data: bytes, more: bytes) -> bytes:
    """A JPEG or PNG with a second EXIF block behind its first."""
    if data.startswith(b"\xff\xd8"):
        at = data.index(b"\xff\xe1")
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        body = b"Exif\0\0" + more
        block = b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body
    else:
        at = data.index(b"eXIf") - 4
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        checksum = zlib.crc32(b"eXIf" + more).to_bytes(4, "big")
        block = len(more).to_bytes(4, "big") + b"eXIf" + more + checksum
    return data[:end] + block + data[end:]


def encoded(image: Image.Image, image_format: str, **options: object) -> bytes:
    buffer = BytesIO()
    image.save(buffer, image_format, **options)
    return buffer.getvalue()


def tiff_pages(images: Sequence[Image.Image], **options: object) -> bytes:
    return encoded(images[0], "TIFF", save_all=True, append_images=list(images[1:]), **options)


def tiff_with_thumbnail(page: Image.Image, thumbnail: Image.Image) -> bytes:
    """Two directories, of which the second says that it is a smaller copy."""
    info = TiffImagePlugin.ImageFileDirectory_v2()
    info[254] = 1
    buffer = BytesIO()
    with TiffImagePlugin.AppendingTiffWriter(buffer, new=True) as writer:
        page.save(writer, "TIFF")
        writer.newFrame()
        thumbnail.save(writer, "TIFF", tiffinfo=info)
    return buffer.getvalue()


def tiff_chain(directories: int, *, cyclic: bool = False, size: int = 10) -> bytes:
    """Directories without pixels, one after the other; the last may lead back to the first."""
    entries = struct.pack("<HHII", 256, 4, 1, size) + struct.pack("<HHII", 257, 4, 1, size)
    step = 2 + len(entries) + 4
    parts = [struct.pack("<2sHI", b"II", 42, 8)]
    for index in range(directories):
        is_last = index == directories - 1
        following = (8 if cyclic else 0) if is_last else 8 + (index + 1) * step
        parts.append(struct.pack("<H", 2) + entries + struct.pack("<I", following))
    return b"".join(parts)


def png_bomb(width: int, height: int) -> bytes:
    """A PNG whose header states a size that its few bytes of zeros would inflate to."""

    def chunk(name: bytes, body: bytes) -> bytes:
        checksum = zlib.crc32(name + body)
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", checksum)

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + header + body + chunk(b"IEND", b"")


def jpeg_bomb(width: int, height: int) -> bytes:
    """A small JPEG whose frame header is rewritten to state `width` x `height`."""
    data = bytearray(encoded(quadrants(), "JPEG"))
    at = data.index(b"\xff\xc0")
    struct.pack_into(">HH", data, at + 5, height, width)
    return bytes(data)


def jpeg_of_depth(bits: int) -> bytes:
    data = bytearray(encoded(quadrants(), "JPEG"))
    data[data.index(b"\xff\xc0") + 4] = bits
    return bytes(data)


def webp_bomb() -> bytes:
    """A VP8X canvas of the largest size the format knows."""
    body = b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + b"\xff\xff\xff" * 2
    return b"RIFF" + struct.pack("<I", len(body)) + body


def heic(name: str = "orientation-1") -> bytes:
    """A stored HEIC, 96 x 64: no encoder is at hand. `orientation-N` as `oriented` would make."""
    return (FIXTURES / "heic" / f"{name}.heic").read_bytes()


def cut(data: bytes, share: float = 0.6) -> bytes:
    return data[: int(len(data) * share)]


def pdf_pages(count: int, width_pt: float = 144, height_pt: float = 72) -> bytes:
    """Page i is one flat colour, `page_colour(i)`, with a black square in its upper left corner."""
    buffer = BytesIO()
    canvas = Canvas(buffer, pagesize=(width_pt, height_pt))
    for index in range(count):
        canvas.setFillColorRGB(*(level / 255 for level in page_colour(index)))
        canvas.rect(0, 0, width_pt, height_pt, stroke=0, fill=1)
        canvas.setFillColorRGB(0, 0, 0)
        canvas.rect(0, height_pt - 18, 18, 18, stroke=0, fill=1)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def pdf_of_empty_pages(count: int) -> bytes:
    """Written by hand: libraries take seconds for thousands of pages."""
    kids = b" ".join(b"%d 0 R" % (3 + index) for index in range(count))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count %d/Kids[%s]>>" % (count, kids),
        *[b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 144 72]>>"] * count,
    ]
    written, offsets = bytearray(b"%PDF-1.4\n"), [b"%010d 65535 f \n" % 0]
    for number, content in enumerate(objects, 1):
        offsets.append(b"%010d 00000 n \n" % len(written))
        written += b"%d 0 obj%sendobj\n" % (number, content)
    table_at, size = len(written), len(offsets)
    written += b"xref\n0 %d\n%s" % (size, b"".join(offsets))
    written += b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, table_at)
    return bytes(written)


def page_colour(index: int) -> tuple[int, int, int]:
    return 40 + 25 * (index % 8), 200 - 20 * (index % 8), 120


def pdf_rotated(degrees: int) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(BytesIO(pdf_pages(1))))
    writer.pages[0].rotate(degrees)
    return _written(writer)


def pdf_encrypted(password: str) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(BytesIO(pdf_pages(1))))
    writer.encrypt(password, algorithm="RC4-128")
    return _written(writer)


def pdf_form(value: str) -> bytes:
    """A page that is white but for a form field filled with `value` in black."""
    buffer = BytesIO()
    canvas = Canvas(buffer, pagesize=(144, 72))
    canvas.acroForm.textfield(
        name="field", value=value, x=10, y=10, width=120, height=50, fontSize=40, borderWidth=0
    )
    canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def _written(writer: PdfWriter) -> bytes:
    buffer = BytesIO()
    writer.write(buffer)
    return buffer.getvalue()
