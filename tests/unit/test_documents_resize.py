"""Sizes that engines take, and boxes that find their way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hunyuan_ocr.documents.document import PageSize
from hunyuan_ocr.documents.resize import draw, fit

sides = st.integers(1, 20_000)


@given(sides, sides, st.integers(1, 20_000), st.integers(2_000, 4_000_000))
def test_fitted_pages_keep_every_bound(width: int, height: int, low: int, high: int) -> None:
    low = min(low, high // 2)
    fitted = fit(PageSize(width, height), low, high)
    content, canvas = fitted.content, fitted.canvas
    assert low - canvas.width <= canvas.width * canvas.height <= high
    assert 1 <= content.width <= min(width, canvas.width)
    assert 1 <= content.height <= min(height, canvas.height)


@given(st.integers(100, 8_000), st.integers(100, 8_000))
def test_shrinking_keeps_the_aspect_within_a_pixel(width: int, height: int) -> None:
    content = fit(PageSize(width, height), 1, 1_000_000).content
    assert abs(content.width * height - content.height * width) <= max(width, height)


@given(sides, sides, st.floats(0, 1), st.floats(0, 1))
def test_boxes_round_trip_and_stay_on_the_canvas(
    width: int, height: int, x_share: float, y_share: float
) -> None:
    source = PageSize(width, height)
    fitted = fit(source, 3136, 1_000_000)
    placement = fitted.placement(source)
    point = (x_share * width, y_share * height)
    x, y = placement.to_prepared(point)
    assert -1e-6 <= x <= fitted.canvas.width + 1e-6
    assert -1e-6 <= y <= fitted.canvas.height + 1e-6
    assert placement.to_source((x, y)) == pytest.approx(point, abs=1e-6)


def test_a_page_within_bounds_stays_as_it_is() -> None:
    fitted = fit(PageSize(1024, 768), 3136, 1_048_576)
    assert fitted.content == fitted.canvas == PageSize(1024, 768)


def test_a_tiny_crop_is_padded_in_its_edge_colour_and_not_stretched() -> None:
    image = Image.new("RGB", (10, 8), (10, 20, 30))
    image.putpixel((5, 4), (255, 255, 255))
    fitted = fit(PageSize(10, 8), 3136, 1_000_000)
    drawn = draw(image, fitted)
    x, y = fitted.offset
    assert drawn.size == (56, 56)
    assert drawn.getpixel((0, 0)) == drawn.getpixel((55, 55)) == (10, 20, 30)
    assert drawn.getpixel((x + 5, y + 4)) == (255, 255, 255)


def test_a_single_pixel_can_be_drawn() -> None:
    drawn = draw(Image.new("RGB", (1, 1), (9, 8, 7)), fit(PageSize(1, 1), 3136, 1_000_000))
    assert drawn.getcolors() == [(56 * 56, (9, 8, 7))]


def test_a_thin_strip_gets_a_shape_that_models_take() -> None:
    canvas = fit(PageSize(4000, 3), 3136, 1_000_000).canvas
    assert canvas.width / canvas.height <= 100
    assert canvas.height >= 32
