"""Small pictures of lines of text, with where each line was drawn."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

FONTS = Path(__file__).parent / "fixtures" / "fonts"
Box = tuple[float, float, float, float]
LINES = ("Invoice No: 20417", "Total amount: 1,284.50")


def picture(
    lines: Sequence[str] = LINES, size: tuple[int, int] = (480, 160), size_px: int = 28
) -> tuple[Image.Image, list[Box]]:
    """Draw `lines` under each other; returns the picture and the box of each line's ink."""
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    face = ImageFont.truetype(FONTS / "TestHeiA.ttf", size_px)
    boxes = []
    for row, text in enumerate(lines):
        corner = (24, 20 + row * size_px * 2)
        draw.text(corner, text, fill="black", font=face)
        boxes.append(draw.textbbox(corner, text, font=face))
    return image, boxes


def saved(image: Image.Image, image_format: str) -> bytes:
    out = io.BytesIO()
    image.save(out, image_format)
    return out.getvalue()


def png_bytes(lines: Sequence[str] = LINES) -> bytes:
    return saved(picture(lines)[0], "PNG")


def jpeg_bytes(lines: Sequence[str] = LINES) -> bytes:
    return saved(picture(lines)[0], "JPEG")
