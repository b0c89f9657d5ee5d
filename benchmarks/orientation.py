"""How often the orientation pre-pass turns a page rightly, and how long it takes.

    make figure NAME=orientation
    python -m benchmarks.orientation [--pages N]

Drawn pages of every kind of the corpus, and columns of Chinese, light text on dark paper, single
lines and pictures without text, each as it is and lying in the three other ways. `false_turns`
are upright pages that were turned; `right` is the share of turned pages with lines that were
turned back, `columns_right` the same for columns, `wrong` how many were turned to another way.
Columns that lie on their left side look upright to the recogniser, and stay so.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from statistics import median

import cv2
from PIL import Image, ImageDraw, ImageOps

from hunyuan_ocr.documents.orient import turn_needed
from tests.corpus import KINDS, pages
from tests.paper import blank, font

COLUMNS, WITHOUT_TEXT = "columns", "no text"
_CLOCKWISE = {
    90: Image.Transpose.ROTATE_270,
    180: Image.Transpose.ROTATE_180,
    270: Image.Transpose.ROTATE_90,
}


def columns(rng: random.Random) -> Image.Image:
    """Chinese in columns from the right."""
    sheet = blank(rng.randrange(300, 900), rng.randrange(400, 800))
    face = font(rng.choice(("TestHeiA", "TestHeiB")), rng.randint(18, 34))
    text = iter("".join(page.text for page in pages("zh", 3, rng.randrange(10**6))))
    pitch, apart = face.size * rng.uniform(1, 1.2), face.size * rng.uniform(1.5, 2)
    x, pen = sheet.image.width - 60.0, ImageDraw.Draw(sheet.image)
    while x > 30:
        rows = int((sheet.image.height - 60 - face.size) // pitch)
        for row, character in enumerate(islice(text, rows)):
            pen.text((x, 30 + row * pitch), character, fill="black", font=face)
        x -= apart
    return sheet.image


def single_line(rng: random.Random) -> Image.Image:
    page = next(pages(rng.choice(("zh", "en")), 1, rng.randrange(10**6)))
    _, (left, top, right, bottom) = page.lines[0]
    return page.image.crop((int(left) - 8, int(top) - 8, int(right) + 8, int(bottom) + 8))


def inverted(rng: random.Random) -> Image.Image:
    kind = rng.choice(("zh", "en", "mixed"))
    return ImageOps.invert(next(pages(kind, 1, rng.randrange(10**6))).image)


def shapes(rng: random.Random) -> Image.Image:
    sheet = blank(800, 600)
    pen = ImageDraw.Draw(sheet.image)
    for _ in range(rng.randint(3, 40)):
        x, y = rng.randint(0, 800), rng.randint(0, 600)
        box = (x, y, x + rng.randint(3, 200), y + rng.randint(3, 200))
        rng.choice((pen.ellipse, pen.rectangle, pen.line))(box, fill=(rng.randint(0, 255),) * 3)
    return sheet.image


MORE: dict[str, Callable[[random.Random], Image.Image]] = {
    COLUMNS: columns,
    "single line": single_line,
    "inverted": inverted,
    WITHOUT_TEXT: shapes,
}


def corpus(count: int, seed: int) -> Iterator[tuple[str, Image.Image]]:
    """`count` pages of every kind."""
    for kind in KINDS:
        for page in pages(kind, count, seed):
            yield kind, page.image
    for kind, draw in MORE.items():
        for index in range(count):
            yield kind, draw(random.Random(f"{kind}/{seed}/{index}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pages", type=int, default=15, help="pages of each kind")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    turn_needed(next(pages("en", 1, 1)).image)  # warm
    outcomes, upright_ms, missed = Counter[str](), [], Counter[str]()
    for kind, image in corpus(options.pages, seed=11):
        started = time.perf_counter()
        outcomes["false_turns"] += turn_needed(image) != 0
        upright_ms.append(1000 * (time.perf_counter() - started))
        outcomes["upright"] += 1
        for lies, transpose in _CLOCKWISE.items() if kind != WITHOUT_TEXT else ():
            found = turn_needed(image.transpose(transpose))
            right = found == 360 - lies
            which = "columns_" if kind == COLUMNS else ""
            outcomes[f"{which}turned"] += 1
            outcomes[f"{which}right"] += right
            outcomes["wrong"] += not right and found != 0
            missed[kind] += not right
    print(
        json.dumps(
            {
                "false_turns": outcomes["false_turns"],
                "upright": outcomes["upright"],
                "right": round(outcomes["right"] / outcomes["turned"], 4),
                "columns_right": round(outcomes["columns_right"] / outcomes["columns_turned"], 4),
                "wrong": outcomes["wrong"],
                "turned": outcomes["turned"],
                "not_right_by_kind": {kind: n for kind, n in missed.items() if n},
                "upright_ms": round(median(upright_ms)),
            }
        )
    )


if __name__ == "__main__":
    main()
