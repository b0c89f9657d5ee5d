"""Character error rate of the embedded engine on drawn pages.

    python -m benchmarks.cer [--pages N] [--workers N] [--seed N] [--json]

Prints a table by kind and, as the last line, one JSON object: `clean` and `by_kind` are edits
per expected character over all pages of the kind, normalised as `tests.corpus.edits` says;
`strict` holds the same without normalising. `--json` prints that line alone.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hunyuan_ocr.documents.document import PreparedImage
from hunyuan_ocr.engines.base import EngineRequest, TextDelta
from hunyuan_ocr.engines.embedded import EmbeddedEngine
from hunyuan_ocr.tasks.catalogue import Task
from tests.corpus import CLEAN_KINDS, KINDS, CorpusPage, edits, pages

MAIN_KINDS = ("zh", "en")
PAGE_TIMEOUT_S = 600.0  # other work on the machine must not fail a page
MAIN_SHARE = 0.25  # of all pages, for each of them; the other kinds share the rest evenly


@dataclass(slots=True)
class Score:
    """Sums over the pages of a kind; `seconds` are those of the engine."""

    pages: int = 0
    characters: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    wrong: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    seconds: float = 0.0

    def add(self, expected: str, text: str, seconds: float) -> None:
        self.pages += 1
        self.seconds += seconds
        for strict in (True, False):
            wrong, characters = edits(expected, text, strict=strict)
            self.wrong[strict] += wrong
            self.characters[strict] += characters

    def rate(self, *, strict: bool) -> float:
        return self.wrong[strict] / max(1, self.characters[strict])


@dataclass(frozen=True, slots=True)
class ReadPage:
    """One page and what was read of it: (text, seconds) by the way it was shown."""

    kind: str
    expected: str
    readings: dict[str, tuple[str, float]]


def plan(count: int) -> dict[str, int]:
    """How many pages of each kind make `count` pages."""
    main = round(count * MAIN_SHARE)
    other = max(1, (count - 2 * main) // (len(KINDS) - len(MAIN_KINDS)))
    return {kind: main if kind in MAIN_KINDS else other for kind in KINDS}


def corpus(count: int, seed: int) -> Iterator[CorpusPage]:
    for kind, number in plan(count).items():
        yield from pages(kind, number, seed)


def as_drawn(page: CorpusPage) -> dict[str, PreparedImage]:
    """The one way to show a page here: as it is."""
    return {"as drawn": bmp(page.image)}


def bmp(image: Image.Image) -> PreparedImage:
    data = io.BytesIO()
    image.save(data, "BMP")
    return PreparedImage(data.getvalue(), "image/bmp", *image.size)


async def read(engine: EmbeddedEngine, image: PreparedImage) -> tuple[str, float]:
    """The text of a page and the seconds it took."""
    request = EngineRequest(image, Task.TEXT, "", 0, request_id="benchmark")
    started = time.perf_counter()
    text = ""
    async for event in engine.stream(request):
        if isinstance(event, TextDelta):
            text += event.text
    return text, time.perf_counter() - started


async def measure(
    todo: Iterator[CorpusPage],
    show: Callable[[CorpusPage], dict[str, PreparedImage]],
    workers: int,
    advance: Callable[[], object],
) -> list[ReadPage]:
    """Read pages in each of the ways that `show` gives by name, `workers` pages at a time."""
    done: list[ReadPage] = []

    def next_page() -> tuple[CorpusPage, dict[str, PreparedImage]] | None:
        page = next(todo, None)
        return None if page is None else (page, show(page))

    async def reader(engine: EmbeddedEngine, turn: asyncio.Lock) -> None:
        while True:
            async with turn:  # a generator has one user at a time
                shown = await asyncio.to_thread(next_page)
            if shown is None:
                return
            page, images = shown
            readings = {way: await read(engine, image) for way, image in images.items()}
            done.append(ReadPage(page.kind, page.text, readings))
            advance()

    async with AsyncExitStack() as stack:
        engine, turn = (
            EmbeddedEngine(workers=workers, page_timeout_s=PAGE_TIMEOUT_S),
            asyncio.Lock(),
        )
        stack.push_async_callback(engine.close)
        await engine.start()
        await asyncio.gather(*(reader(engine, turn) for _ in range(workers)))
    return done


def scored(done: Iterable[ReadPage], way: str) -> dict[str, Score]:
    """Scores by kind of what was read in one way."""
    scores: defaultdict[str, Score] = defaultdict(Score)
    for page in done:
        scores[page.kind].add(page.expected, *page.readings[way])
    return dict(scores)


def run(
    todo: Iterator[CorpusPage],
    total_pages: int,
    show: Callable[[CorpusPage], dict[str, PreparedImage]],
    workers: int,
) -> list[ReadPage]:
    """`measure` with a bar of progress on standard error."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        bar = progress.add_task("pages", total=total_pages)
        return asyncio.run(measure(todo, show, workers, lambda: progress.advance(bar)))


def total(scores: dict[str, Score], kinds: tuple[str, ...], *, strict: bool) -> float:
    wrong = sum(scores[kind].wrong[strict] for kind in kinds)
    return wrong / max(1, sum(scores[kind].characters[strict] for kind in kinds))


def table(scores: dict[str, Score]) -> Table:
    shown = Table("kind", "pages", "characters", "CER", "CER strict", "ms per page")
    for kind in KINDS:
        score = scores[kind]
        shown.add_row(
            kind,
            str(score.pages),
            str(score.characters[True]),
            f"{score.rate(strict=False):.4f}",
            f"{score.rate(strict=True):.4f}",
            f"{1000 * score.seconds / score.pages:.0f}",
        )
    return shown


def summary(scores: dict[str, Score]) -> dict[str, object]:
    def rates(*, strict: bool) -> dict[str, object]:
        return {
            "clean": round(total(scores, CLEAN_KINDS, strict=strict), 5),
            "by_kind": {kind: round(scores[kind].rate(strict=strict), 5) for kind in KINDS},
        }

    return {**rates(strict=False), "strict": rates(strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pages", type=int, default=208, help="pages in all kinds together")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=2024)
    parser.add_argument("--json", action="store_true", help="print the JSON line alone")
    options = parser.parse_args()
    todo = corpus(options.pages, options.seed)
    done = run(todo, sum(plan(options.pages).values()), as_drawn, options.workers)
    scores = scored(done, "as drawn")
    if not options.json:
        Console().print(table(scores))
    print(json.dumps(summary(scores)))


if __name__ == "__main__":
    main()
