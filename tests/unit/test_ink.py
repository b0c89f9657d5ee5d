"""Blank pages are told from pages that hold as little as one faint glyph."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from hunyuan_ocr.documents.ink import ink_box, is_blank
from tests.paper import font

WIDTH, HEIGHT = 700, 1000
Levels = NDArray[np.float64]


def picture_of(levels: Levels) -> Image.Image:
    return Image.fromarray(levels.clip(0, 255).astype(np.uint8)).convert("RGB")


def as_jpeg(image: Image.Image, quality: int = 60) -> Image.Image:
    data = io.BytesIO()
    image.save(data, "JPEG", quality=quality)
    return Image.open(data).convert("RGB")


def paper(level: float = 240) -> Levels:
    return np.full((HEIGHT, WIDTH), level)


def grainy(deviation: float) -> Levels:
    return paper() + np.random.default_rng(1).normal(0, deviation, (HEIGHT, WIDTH))


def shaded() -> Levels:
    y, x = np.mgrid[-1 : 1 : HEIGHT * 1j, -1 : 1 : WIDTH * 1j]
    shade: Levels = paper() - 45 * (x**2 + y**2)
    return shade


def specked() -> Levels:
    levels, dice = paper(), np.random.default_rng(2).random((HEIGHT, WIDTH))
    levels[dice < 0.004] = 0
    return levels


def fibrous() -> Levels:
    grain = Image.fromarray(np.random.default_rng(3).integers(0, 255, (200, 140)).astype(np.uint8))
    return paper(230) + (np.asarray(grain.resize((WIDTH, HEIGHT)), float) - 127) / 12


def scanned_with_lid() -> Levels:
    levels = paper()
    levels[:, :20] = 20
    levels[-15:] = 30
    return levels


def punched() -> Levels:
    image = picture_of(paper()).convert("L")
    for y in (250, 750):
        ImageDraw.Draw(image).ellipse((20, y, 44, y + 24), fill=60)
    return np.asarray(image, float)


BLANK: dict[str, Callable[[], Levels]] = {
    "white": lambda: paper(255),
    "black": lambda: paper(0),
    "grey": lambda: paper(120),
    "light noise": lambda: grainy(3),
    "heavy noise": lambda: grainy(25),
    "shadow": shaded,
    "shadow and noise": lambda: shaded() + grainy(4) - 240,
    "specks": specked,
    "fibres": fibrous,
    "scanner lid": scanned_with_lid,
    "punched holes": punched,
}


@pytest.mark.parametrize("name", BLANK)
def test_blank_paper_is_blank_and_stays_so_as_a_jpeg(name: str) -> None:
    image = picture_of(BLANK[name]())
    assert is_blank(image)
    assert is_blank(as_jpeg(image))


@pytest.mark.parametrize("size", [(1, 1), (10, 8), (3, 400)])
def test_tiny_uniform_pages_are_blank(size: tuple[int, int]) -> None:
    assert is_blank(Image.new("RGB", size, (9, 8, 7)))


def mark(draw: Callable[[Any], None]) -> Image.Image:
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw(ImageDraw.Draw(image))
    return image


@pytest.mark.parametrize(
    "draw",
    [
        lambda pen: pen.ellipse((300, 300, 301, 301), fill=(60, 60, 60)),
        lambda pen: pen.ellipse((300, 300, 312, 312), fill="black"),
        lambda pen: pen.line((50, 500, 250, 500), fill=(215, 215, 215)),
        lambda pen: pen.rectangle((0, 0, WIDTH // 2, HEIGHT), fill="navy"),
        lambda pen: pen.ellipse((20, 500, 44, 524), fill="black"),
        lambda pen: pen.text((1, 480), "margin", fill="black"),
    ],
    ids=["period", "bullet", "faint rule", "half a picture", "one disc at the side", "at the edge"],
)
def test_a_single_mark_is_not_blank(draw: Callable[[Any], None]) -> None:
    assert not is_blank(mark(draw))


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["TestHeiA", "TestSans", "TestSerif", "TestMono", "TestGrotesque"]),
    st.integers(9, 70),
    st.sampled_from("AbcdEfghHkKxYz0123456789中国"),
    st.integers(0, 255),
    st.integers(25, 255) | st.integers(-255, -25),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from([0, 1, 2]),
)
def test_a_glyph_of_six_pixels_and_25_levels_is_never_missed(
    name: str, size: int, glyph: str, level: int, contrast: int, x: float, y: float, noise: int
) -> None:
    assume(0 <= level + contrast <= 255)
    face = font(name, size)
    left, top, right, bottom = face.getbbox(glyph)
    assume(bottom - top >= 6)
    image = Image.new("L", (WIDTH // 2, HEIGHT // 2), level)
    at = (
        x * (image.width - right + left) - left,
        y * (image.height - bottom + top) - top,
    )
    ImageDraw.Draw(image).text(at, glyph, fill=level + contrast, font=face)
    levels = np.asarray(image, float)
    levels = levels + np.random.default_rng(size).normal(0, noise, levels.shape)
    assert not is_blank(picture_of(levels))


def test_the_box_around_the_ink_leaves_out_specks_holes_and_the_lid() -> None:
    levels = scanned_with_lid()
    levels[900, 50] = 0
    image = picture_of(levels).convert("L")
    ImageDraw.Draw(image).rectangle((300, 500, 340, 510), fill=0)
    assert ink_box(np.asarray(image)) == pytest.approx((300, 500, 341, 511), abs=2)


@pytest.mark.parametrize("name", ["white", "heavy noise", "punched holes", "scanner lid"])
def test_there_is_no_box_where_there_is_no_ink(name: str) -> None:
    assert ink_box(np.asarray(picture_of(BLANK[name]()).convert("L"))) is None
