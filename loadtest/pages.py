"""Pages to send: drawn to a mix of sizes and lengths, or those of a folder. All are different, so
that no cache flatters the server.
"""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter, ImageFont

DEFAULT_MIX = "1024x768"
_TYPES = {
    ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png", ".webp": "image/webp",
    ".tif": "image/tiff", ".tiff": "image/tiff", ".bmp": "image/bmp", ".pdf": "application/pdf",
}  # fmt: skip
_TEXT_PX = 20
_LINE_PX = 30


class PagesUnusable(Exception):
    """The mix or folder cannot be used; the message is for people."""


@dataclass(frozen=True, slots=True)
class Page:
    content: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Kind:
    """Pages of one size in pixels with as many lines of text; `share` of all, relative."""

    width: int
    height: int
    lines: int
    share: float


def read_mix(text: str) -> list[Kind]:
    """`1024x768@24=0.7,2048x1536@60=0.3`: width x height, lines (as many as fit), share (1).

    Raises PagesUnusable.
    """
    kinds = []
    for part in text.split(","):
        size, _, share = part.strip().partition("=")
        size, _, lines = size.partition("@")
        try:
            width, height = (int(pixels) for pixels in size.split("x"))
            fit = max(1, (height - 2 * _TEXT_PX) // _LINE_PX)
            kind = Kind(width, height, int(lines or fit), float(share or 1))
        except ValueError:
            raise PagesUnusable(f"{part!r} is no WIDTHxHEIGHT[@LINES][=SHARE]") from None
        if min(width, height) < 32 or kind.share <= 0 or kind.lines < 0:
            raise PagesUnusable(f"{part!r}: sides from 32 pixels, shares above 0")
        kinds.append(kind)
    return kinds


def draw_pages(mix: Sequence[Kind], count: int, seed: int = 0) -> list[Page]:
    """`count` different JPEGs in the proportions of `mix`, mixed."""
    rng = random.Random(seed)  # noqa: S311 - pictures
    shares = [kind.share for kind in mix]
    return [_draw(kind, rng) for kind in rng.choices(mix, shares, k=count)]


def _draw(kind: Kind, rng: random.Random) -> Page:
    """Lines of words and numbers on paper with grain, as a scan has."""
    size = (kind.width, kind.height)
    grain = Image.frombytes("L", (256, 256), rng.randbytes(1 << 16))
    grain = grain.filter(ImageFilter.GaussianBlur(0.6)).resize(size)
    page = Image.blend(Image.new("L", size, 255), grain, 0.12).convert("RGB")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(_TEXT_PX)
    for line in range(kind.lines):
        words = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz 0123456789", k=kind.width // 14))
        pen.text((_TEXT_PX, _TEXT_PX + _LINE_PX * line), words, fill=(20, 20, 40), font=font)
    buffer = io.BytesIO()
    page.save(buffer, "JPEG", quality=88)
    return Page(buffer.getvalue(), "image/jpeg")


def folder_pages(folder: Path) -> list[Page]:
    """The images and PDFs of a folder, by name. Raises PagesUnusable."""
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in _TYPES)
    if not files:
        raise PagesUnusable(f"{folder} holds no image or PDF")
    return [Page(path.read_bytes(), _TYPES[path.suffix.lower()]) for path in files]
