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
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hunyuan_ocr.documents.document import PreparedImage
from hunyuan_ocr.engines.base import EngineRequest, TextDelta
from hunyuan_ocr.engines.embedded import EmbeddedEngine
from hunyuan_ocr.tasks.catalogue import Task
from tests.corpus import CLEAN_KINDS, KINDS, CorpusPage, edits, pages

MAIN_KINDS = ("zh", "en")
MAIN_SHARE = 0.25  # of all pages, for each of them; the other kinds share the rest evenly


@dataclass(slots=True)
class Score:
    """Sums over the pages of a kind; `seconds` are those of the engine."""

    pages: int = 0
    characters: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    wrong: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    seconds: float = 0.0

    def add(self, page: CorpusPage, text: str, seconds: float) -> None:
        self.pages += 1
        self.seconds += seconds
        for strict in (True, False):
            wrong, characters = edits(page.text, text, strict=strict)
            self.wrong[strict] += wrong
            self.characters[strict] += characters

    def rate(self, *, strict: bool) -> float:
        return self.wrong[strict] / max(1, self.characters[strict])


def plan(count: int) -> dict[str, int]:
    """How many pages of each kind make `count` pages."""
    main = round(count * MAIN_SHARE)
    other = max(1, (count - 2 * main) // (len(KINDS) - len(MAIN_KINDS)))
    return {kind: main if kind in MAIN_KINDS else other for kind in KINDS}


def corpus(count: int, seed: int) -> Iterator[CorpusPage]:
    for kind, number in plan(count).items():
        yield from pages(kind, number, seed)


async def read(engine: EmbeddedEngine, page: CorpusPage) -> tuple[str, float]:
    """The text of a page and the seconds it took."""
    data = io.BytesIO()
    page.image.save(data, "BMP")
    image = PreparedImage(data.getvalue(), "image/bmp", *page.image.size)
    request = EngineRequest(image, Task.TEXT, "", 0, request_id="benchmark")
    started = time.perf_counter()
    text = ""
    async for event in engine.stream(request):
        if isinstance(event, TextDelta):
            text += event.text
    return text, time.perf_counter() - started


async def measure(count: int, workers: int, seed: int, progress: Progress) -> dict[str, Score]:
    """Read the whole corpus, `workers` pages at a time."""
    scores: defaultdict[str, Score] = defaultdict(Score)
    todo = corpus(count, seed)  # one generator for all readers: pages are drawn when needed
    bar = progress.add_task("pages", total=sum(plan(count).values()))

    async def reader(engine: EmbeddedEngine) -> None:
        for page in todo:
            text, seconds = await read(engine, page)
            scores[page.kind].add(page, text, seconds)
            progress.advance(bar)

    async with AsyncExitStack() as stack:
        engine = EmbeddedEngine(workers=workers)
        stack.push_async_callback(engine.close)
        await engine.start()
        await asyncio.gather(*(reader(engine) for _ in range(workers)))
    return dict(scores)


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
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        scores = asyncio.run(measure(options.pages, options.workers, options.seed, progress))
    if not options.json:
        Console().print(table(scores))
    print(json.dumps(summary(scores)))


if __name__ == "__main__":
    main()
