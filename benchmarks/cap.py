"""Pixel cap against error rate: A5 pages in small print at 300 dpi, read by the embedded engine.

    python -m benchmarks.cap [--pages N] [--workers N] [--seed N]

The last line is one JSON object: `table` has the cap in megapixels, the character error rate
and the engine's seconds per page.
"""

from __future__ import annotations

import argparse
import json
import os

from rich.console import Console
from rich.table import Table

from benchmarks.cer import run, scored
from hunyuan_ocr.documents.document import (
    Document,
    DocumentKind,
    ImageEncoding,
    PreparedImage,
    PrepareOptions,
)
from hunyuan_ocr.documents.prepare import prepare
from tests.corpus import LARGE_KIND, CorpusPage, pages
from tests.files import encoded

CAPS_MEGAPIXELS = (0.5, 1.0, 2.0, 3.0, 4.0)


def capped(page: CorpusPage) -> dict[str, PreparedImage]:
    """The page by each cap."""
    document = Document(DocumentKind.JPEG, encoded(page.image, "JPEG", quality=90))
    return {
        str(cap): prepare(
            document, 0, PrepareOptions(int(cap * 1e6), min_pixels=1, encoding=ImageEncoding.BMP)
        )
        .tiles[0]
        .image
        for cap in CAPS_MEGAPIXELS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=2024)
    options = parser.parse_args()
    todo = pages(LARGE_KIND, options.pages, options.seed)
    done = run(todo, options.pages, capped, options.workers)
    shown, rows = Table("megapixels", "CER", "s per page"), []
    for cap in CAPS_MEGAPIXELS:
        score = scored(done, str(cap))[LARGE_KIND]
        rate, seconds = score.rate(strict=False), score.seconds / score.pages
        rows.append({"megapixels": cap, "cer": round(rate, 4), "seconds": round(seconds, 2)})
        shown.add_row(f"{cap:g}", f"{rate:.4f}", f"{seconds:.2f}")
    Console().print(shown)
    print(json.dumps({"table": rows}))


if __name__ == "__main__":
    main()
