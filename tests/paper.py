"""Paper that pages are written on, and what happens to paper afterwards."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

FIXTURES = Path(__file__).parent / "fixtures"

Box = tuple[float, float, float, float]
Font = ImageFont.FreeTypeFont


@dataclass(slots=True)
class Sheet:
    """White paper and what has been written on it."""

    image: Image.Image
    lines: list[tuple[str, Box]] = field(default_factory=list)

    def write(self, x: float, y: float, text: str, font: Font, ink: int = 0) -> Box:
        """Write a line with its upper left corner at (x, y) and note where its ink is."""
        box = self.draw(x, y, text, font, ink)
        self.lines.append((text, box))
        return box

    def write_row(self, xs: list[float], y: float, cells: list[str], font: Font) -> None:
        """Write cells at `xs`; together they are one line."""
        boxes = [self.draw(x, y, cell, font) for x, cell in zip(xs, cells, strict=True)]
        lefts, tops, rights, ends = zip(*boxes, strict=True)
        self.lines.append((" ".join(cells), (min(lefts), min(tops), max(rights), max(ends))))

    def draw(self, x: float, y: float, text: str, font: Font, ink: int = 0) -> Box:
        pen = ImageDraw.Draw(self.image)
        pen.text((x, y), text, fill=(ink, ink, ink), font=font)
        return pen.textbbox((x, y), text, font=font)


def blank(width: int, height: int) -> Sheet:
    return Sheet(Image.new("RGB", (width, height), "white"))


@cache
def font(name: str, size_px: int) -> Font:
    """A font of the fixtures at a size in pixels."""
    return ImageFont.truetype(FIXTURES / "fonts" / f"{name}.ttf", size_px)


def skewed(sheet: Sheet, rng: random.Random) -> Sheet:
    """The page turned by 1 to 6 degrees on larger white paper."""
    angle = np.deg2rad(rng.choice([-1, 1]) * rng.uniform(1, 6))
    width, height = sheet.image.size
    cos, sin = np.cos(angle), np.sin(angle)
    new_w = int(width * cos + height * abs(sin)) + 1
    new_h = int(height * cos + width * abs(sin)) + 1
    forward = np.array(
        [
            [cos, -sin, new_w / 2 - cos * width / 2 + sin * height / 2],
            [sin, cos, new_h / 2 - sin * width / 2 - cos * height / 2],
            [0, 0, 1],
        ]
    )
    return _project(sheet, forward, (new_w, new_h), (255, 255, 255))


def _project(
    sheet: Sheet, forward: np.ndarray, size: tuple[int, int], paper: tuple[int, int, int]
) -> Sheet:
    """Move the page and its boxes by a 3x3 homography from old pixels to new ones."""
    back = np.linalg.inv(forward)
    back /= back[2, 2]
    image = sheet.image.transform(
        size,
        Image.Transform.PERSPECTIVE,
        [float(value) for value in back.flatten()[:8]],
        Image.Resampling.BICUBIC,
        fillcolor=paper,
    )
    moved = []
    for text, (left, top, right, end) in sheet.lines:
        corners = [(left, top, 1), (right, top, 1), (right, end, 1), (left, end, 1)]
        points = np.array(corners, float) @ forward.T
        xs, ys = points[:, 0] / points[:, 2], points[:, 1] / points[:, 2]
        moved.append((text, (float(xs.min()), float(ys.min()), float(xs.max()), float(ys.max()))))
    return Sheet(image, moved)


def noisy(sheet: Sheet, rng: random.Random) -> Sheet:
    """The page in grey ink, with grain and specks."""
    pixels = np.asarray(sheet.image, np.float32)
    dice = np.random.default_rng(rng.getrandbits(32))
    pixels = 255 - (255 - pixels) * np.float32(rng.uniform(0.5, 0.9))  # grey ink
    pixels += dice.normal(0, rng.uniform(8, 30), pixels.shape).astype(np.float32)
    specks = dice.random(pixels.shape[:2])
    pixels[specks < 0.004] = 0
    pixels[specks > 0.996] = 255
    return Sheet(Image.fromarray(pixels.clip(0, 255).astype(np.uint8)), sheet.lines)


def photographed(sheet: Sheet, rng: random.Random) -> Sheet:
    """The page as a phone takes it: in perspective, blurred, unevenly lit, as a JPEG."""
    width, height = sheet.image.size
    corners = [(0, 0), (width, 0), (width, height), (0, height)]
    shift = 0.04 * min(width, height)
    seen = [
        (x + 40 + rng.uniform(-shift, shift), y + 40 + rng.uniform(-shift, shift))
        for x, y in corners
    ]
    sheet = _project(sheet, _homography(corners, seen), (width + 80, height + 80), (90, 80, 70))
    image = sheet.image.filter(ImageFilter.GaussianBlur(rng.uniform(0.4, 1.1)))
    light = np.linspace(rng.uniform(0.6, 1), rng.uniform(0.6, 1), image.width)[None, :, None]
    pixels = np.asarray(image, np.float32) * light
    buffer = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(buffer, "JPEG", quality=rng.randint(40, 80))
    return Sheet(Image.open(buffer).convert("RGB"), sheet.lines)


def _homography(old: list[tuple[int, int]], new: list[tuple[float, float]]) -> np.ndarray:
    """The 3x3 matrix that takes four points to four others."""
    rows, goal = [], []
    for (x, y), (u, v) in zip(old, new, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        goal += [u, v]
    solved = np.linalg.solve(np.array(rows, float), np.array(goal, float))
    return np.append(solved, 1.0).reshape(3, 3)
