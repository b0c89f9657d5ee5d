"""Pages that the tiny checkpoint was trained to read, and how a chat asks for their text."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from tests.fixtures.models.train.data import CJK
from tests.pictures import FONTS, Box, saved

PROMPT = "提取图中的文字。"
_LATIN = ("TestSans.ttf", "TestGrotesque.ttf")
_CHINESE = "TestHeiA.ttf"
_PAD_PX = 16
_GAP_PX = 16


@dataclass(frozen=True)
class Paper:
    """A page: its PNG, its lines, where each was drawn, and the fields an invoice has."""

    png: bytes
    size: tuple[int, int]
    lines: tuple[str, ...]
    boxes: tuple[Box, ...]
    fields: dict[str, str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def invoices(count: int, seed: int, size: tuple[int, int] | None = None) -> Iterator[Paper]:
    """Short pages as high as their text, or of `size` with the text spread out."""
    rng = random.Random(seed)
    for _ in range(count):
        fields = {
            "Invoice No": str(rng.randint(10**5, 10**7)),
            "Date": f"20{rng.randint(10, 38)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
            "Total": f"{rng.randint(1, 9999)}.{rng.randint(0, 99):02d}",
            "Qty": str(rng.randint(1, 99)),
        }
        lines = [f"{name}: {value}" for name, value in fields.items()]
        yield _draw(lines, rng, rng.choice(_LATIN), fields, size)


def chinese(count: int, seed: int) -> Iterator[Paper]:
    rng = random.Random(seed)
    for _ in range(count):
        yield _draw(["".join(rng.choices(CJK, k=8)) for _ in range(4)], rng, _CHINESE, {}, None)


def chat(png: bytes, text: str = PROMPT, *, system: str = "", **members: object) -> dict[str, Any]:
    """The body of a chat request about one picture, with further `members`."""
    url = "data:image/png;base64," + base64.b64encode(png).decode()
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]
    messages = [{"role": "system", "content": system}, {"role": "user", "content": parts}]
    return {"messages": messages, **members}


def _draw(
    lines: list[str],
    rng: random.Random,
    font: str,
    fields: dict[str, str],
    size: tuple[int, int] | None,
) -> Paper:
    size_px = rng.choice((18, 20, 24, 28))
    gap_px = _GAP_PX if size is None else 2 * _GAP_PX
    width = rng.choice((384, 512, 640))
    height = _PAD_PX * 2 + len(lines) * (size_px + gap_px)
    width, height = size or (width, height)
    image = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(image)
    face = ImageFont.truetype(FONTS / font, size_px)
    boxes = []
    for row, line in enumerate(lines):
        corner = (_PAD_PX, _PAD_PX + row * (size_px + gap_px))
        pen.text(corner, line, fill="black", font=face)
        boxes.append(pen.textbbox(corner, line, font=face))
    return Paper(saved(image, "PNG"), image.size, tuple(lines), tuple(boxes), fields)
