"""Feeds damaged pictures to sniffing, header reading and decoding, guided by coverage.

    python -m tests.fuzz.decode [libFuzzer's options]

Anything but a refusal of ours ends the run: another exception, a crash of a decoder, more than
two seconds or a gigabyte for one file. The Python code of the project and of Pillow is
instrumented; native decoders are exercised, not instrumented. PDF is left out: pdfium is fuzzed
where it is made, and runs in a process of its own.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["hunyuan_ocr.documents", "PIL"]):
    from hunyuan_ocr.documents import prepare as preparing
    from hunyuan_ocr.documents.document import (
        Document,
        DocumentKind,
        ImageEncoding,
        PrepareOptions,
    )
    from hunyuan_ocr.documents.header import Limits, read_header
    from hunyuan_ocr.documents.sniff import sniff
    from hunyuan_ocr.errors import OcrError

from tests import files

LIMITS = Limits(max_megapixels=1, max_pages=5)
OPTIONS = PrepareOptions(
    max_pixels=4096, min_pixels=1024, encoding=ImageEncoding.BMP, max_source_megapixels=1
)
LIBFUZZER = (
    "-timeout=2",
    "-rss_limit_mb=1024",
    "-max_len=20000",
    "-print_final_stats=1",
    "-close_fd_mask=2",
)


def read(data: bytes) -> None:
    """One file through all that touches its bytes."""
    try:
        kind = sniff(data)
        if kind is DocumentKind.PDF:
            return
        document = Document(kind, data)
        if kind in preparing.READ_IN_WORKER:
            info = preparing.inspect(document, LIMITS)
        else:
            info = read_header(document, LIMITS)
        for index in range(len(info.pages)):
            preparing.prepare(document, index, OPTIONS)
    except OcrError:
        pass


def seeds() -> list[bytes]:
    """Sound pictures of every format and of their rarer kinds."""
    picture = files.quadrants(32, 24)
    kinds = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "AVIF", "JPEG2000")
    modes = ("1", "L", "P", "RGBA", "CMYK", "I;16", "F")
    plain = [files.encoded(picture, kind) for kind in kinds]
    tiffs = [files.encoded(picture.convert("L").convert(mode), "TIFF") for mode in modes]
    compressed = [
        files.tiff_pages([picture] * 2, compression=f"tiff_{name}")
        for name in ("lzw", "adobe_deflate", "jpeg")
    ]
    oriented = [files.oriented(picture, name, 6) for name in ("JPEG", "PNG", "WEBP", "TIFF")]
    animated = [
        files.encoded(picture, name, save_all=True, append_images=[picture.rotate(180)])
        for name in ("GIF", "PNG", "WEBP")
    ]
    rarer = [
        files.encoded(picture, "JPEG", progressive=True, restart_marker_blocks=2),
        files.encoded(picture.convert("CMYK"), "JPEG"),
        files.heic(),
    ]
    return plain + tiffs + compressed + oriented + animated + rarer


def main() -> None:
    warnings.simplefilter("ignore")
    preparing.set_up_worker()
    with tempfile.TemporaryDirectory() as folder:
        for index, data in enumerate(seeds()):
            (Path(folder) / str(index)).write_bytes(data)
        atheris.Setup([sys.argv[0], *LIBFUZZER, *sys.argv[1:], folder], read)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
