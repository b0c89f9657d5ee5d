"""What preparing a photo costs, and whether it reads as well as the slow way.

    python -m benchmarks.prepare [--pages N] [--pairs N] [--workers N] [--seed N]

The slow way is Pillow's `Image.open(...).resize(...)` with Lanczos's filter. Speed is taken on
a photo of a page of 12 megapixels brought to 1024 pixels on its longer side: ours includes all
that the service does, up to the encoded image. Both run in turns; `speedup` is the median of
their pairs. `cer_delta` is the character error rate of the embedded engine after our
preparation less that after the slow one, on pages of the corpus enlarged as cameras see them
and stored as JPEG. The last line is one JSON object of the two.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import cycle

from PIL import Image
from rich.console import Console

from benchmarks.cer import ReadPage, Score, bmp, corpus, plan, run, scored
from hunyuan_ocr.documents.document import (
    Document,
    DocumentKind,
    ImageEncoding,
    PreparedImage,
    PrepareOptions,
)
from hunyuan_ocr.documents.prepare import prepare
from tests.corpus import KINDS, CorpusPage, edits, pages
from tests.paper import Sheet, photographed

PHOTO, INPUT = (4000, 3000), (1024, 768)
ENLARGED = (1.4, 2.0, 2.8, 3.9)  # sides of a photo, in those of the image that is read
OURS, SLOW = "ours", "Lanczos"
INTERVAL = 0.95


def photo(page: Image.Image, size: tuple[int, int]) -> bytes:
    """The page as a phone stores it."""
    data = io.BytesIO()
    page.resize(size, Image.Resampling.BICUBIC).save(data, "JPEG", quality=92, subsampling=2)
    return data.getvalue()


def ours(data: bytes, size: tuple[int, int], encoding: ImageEncoding) -> PreparedImage:
    options = PrepareOptions(max_pixels=size[0] * size[1], min_pixels=1, encoding=encoding)
    return prepare(Document(DocumentKind.JPEG, data), 0, options).tiles[0].image


def slow(data: bytes, size: tuple[int, int]) -> Image.Image:
    return Image.open(io.BytesIO(data)).resize(size, Image.Resampling.LANCZOS)


def speedups(pairs: int, seed: int, encoding: ImageEncoding) -> list[float]:
    """Time of the slow way by the time of ours, pair by pair."""
    page = next(pages("en", 1, seed))
    data = photo(photographed(Sheet(page.image), random.Random(seed)).image, PHOTO)
    ways = (lambda: slow(data, INPUT), lambda: ours(data, INPUT, encoding))
    ratios = []
    for index in range(pairs + 1):
        order = (0, 1) if index % 2 else (1, 0)
        took = {way: _seconds(ways[way]) for way in order}
        ratios.append(took[0] / took[1])
    return ratios[1:]  # the first pair warms up


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def median_interval(values: Sequence[float], rng: random.Random) -> tuple[float, float]:
    """The middle of medians of resampled values: bootstrap, percentiles."""
    return _interval([statistics.median(rng.choices(values, k=len(values))) for _ in range(2000)])


def delta_interval(done: Sequence[ReadPage], rng: random.Random) -> tuple[float, float]:
    """The same for the difference of error rates, resampling pages."""
    counted = [_edits(page) for page in done]
    deltas = []
    for _ in range(2000):
        drawn = rng.choices(counted, k=len(counted))
        deltas.append(sum(a - b for a, b, _ in drawn) / sum(n for *_, n in drawn))
    return _interval(deltas)


def _edits(page: ReadPage) -> tuple[int, int, int]:
    """Edits after our preparation, after the slow one, and characters."""
    fast, characters = edits(page.expected, page.readings[OURS][0])
    return fast, edits(page.expected, page.readings[SLOW][0])[0], characters


def _interval(values: list[float]) -> tuple[float, float]:
    values.sort()
    cut = round(len(values) * (1 - INTERVAL) / 2)
    return values[cut], values[-1 - cut]


def both_ways() -> Callable[[CorpusPage], dict[str, PreparedImage]]:
    """Shows a page both ways, each page enlarged by another factor than the one before."""
    factors = cycle(ENLARGED)

    def show(page: CorpusPage) -> dict[str, PreparedImage]:
        factor, size = next(factors), page.image.size
        data = photo(page.image, (round(size[0] * factor), round(size[1] * factor)))
        return {OURS: ours(data, size, ImageEncoding.BMP), SLOW: bmp(slow(data, size))}

    return show


def rate(scores: dict[str, Score]) -> float:
    wrong = sum(score.wrong[False] for score in scores.values())
    return wrong / sum(score.characters[False] for score in scores.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pages", type=int, default=204, help="pages in all kinds together")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=2024)
    options = parser.parse_args()
    rng, out = random.Random(options.seed), Console()
    for encoding in (ImageEncoding.JPEG, ImageEncoding.BMP):
        ratios = speedups(options.pairs, options.seed, encoding)
        low, high = median_interval(ratios, rng)
        out.print(
            f"to {encoding.name}: {statistics.median(ratios):.2f} times as fast"
            f" ({INTERVAL:.0%} of {low:.2f} to {high:.2f}, {len(ratios)} pairs)"
        )
    done = run(
        corpus(options.pages, options.seed),
        sum(plan(options.pages).values()),
        both_ways(),
        options.workers,
    )
    fast, reference = scored(done, OURS), scored(done, SLOW)
    for kind in KINDS:
        rates = f"{fast[kind].rate(strict=False):.4f} {reference[kind].rate(strict=False):.4f}"
        out.print(f"{kind:12} {fast[kind].pages:3} pages  CER {OURS}, {SLOW}: {rates}")
    delta = rate(fast) - rate(reference)
    low, high = delta_interval(done, rng)
    out.print(f"CER {rate(fast):.5f} less {rate(reference):.5f} = {delta:+.5f}")
    out.print(f"{INTERVAL:.0%} of {low:+.5f} to {high:+.5f}, {len(done)} pages")
    print(
        json.dumps({"speedup": round(statistics.median(ratios), 2), "cer_delta": round(delta, 5)})
    )


if __name__ == "__main__":
    main()
