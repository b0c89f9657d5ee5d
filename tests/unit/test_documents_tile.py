"""Long pages: where they are cut, and that a point of the page is found again in its tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from hunyuan_ocr.documents.document import (
    Degrees,
    ImageEncoding,
    Orient,
    PageSize,
    PrepareOptions,
)
from hunyuan_ocr.documents.layout import images, lay_out, lowered
from hunyuan_ocr.documents.tile import Span, Tiling, cut, quiet_rows, tiling
from tests.pictures import picture

PIXELS = 1 << 20
sides = st.integers(1, 30_000)
budgets = st.tuples(st.integers(100_000, 4_000_000), st.integers(2, 24))


@st.composite
def plans(draw: st.DrawFn) -> Tiling:
    """Pages that are cut, of any shape for which that happens."""
    short, times = draw(st.integers(40, 3_000)), draw(st.floats(3, 40))
    size = [short, int(short * times)]
    if draw(st.booleans()):
        size.reverse()
    max_pixels, max_tiles = draw(budgets)
    plan = tiling(PageSize(*size), max_pixels, max_tiles)
    return plan or Tiling(PageSize(100, 4_000), 1_000, 5, down=True)


@st.composite
def quiet_runs(draw: st.DrawFn) -> list[Span]:
    edges = sorted(draw(st.sets(st.integers(0, 20_000), max_size=60)))
    return list(zip(edges[::2], edges[1::2], strict=False))


@given(plans(), quiet_runs())
def test_tiles_cover_the_page_and_overlap_where_they_cut_through_something(
    plan: Tiling, quiet: list[Span]
) -> None:
    total = plan.content.height if plan.down else plan.content.width
    spans = cut(plan, quiet)
    assert (spans[0][0], spans[-1][1]) == (0, total)
    assert len(spans) <= plan.tiles
    for (start, end), (following, _) in pairwise(spans):
        assert start < following <= end
        on_paper = any(first <= end <= last for first, last in quiet)
        assert (end == following and on_paper) or end - following == plan.overlap
    assert all(0 < end - start <= plan.length for start, end in spans)


@given(sides, sides, budgets)
def test_a_tile_is_within_the_engines_pixels_and_shows_text_larger(
    width: int, height: int, budget: tuple[int, int]
) -> None:
    max_pixels, max_tiles = budget
    plan = tiling(PageSize(width, height), max_pixels, max_tiles)
    if plan is None:
        return
    across = plan.content.width if plan.down else plan.content.height
    assert across * plan.length <= max_pixels
    assert 2 <= plan.tiles <= max_tiles
    assert plan.content.width <= width
    assert plan.content.height <= height
    whole = (max_pixels / (width * height)) ** 0.5
    assert plan.content.width / width > 1.35 * whole


@pytest.mark.parametrize(
    "size", [(1654, 2339), (480, 160), (10, 8), (1, 1), (4000, 3), (900, 2200)]
)
def test_pages_of_usual_shape_stay_whole(size: tuple[int, int]) -> None:
    assert tiling(PageSize(*size), PIXELS, 12) is None


def test_a_chat_log_is_cut_at_its_own_size() -> None:
    plan = tiling(PageSize(720, 12_040), PIXELS, 16)
    assert plan is not None
    assert plan.content == PageSize(720, 12_040)


def test_rows_between_lines_are_quiet_and_rows_of_text_are_not() -> None:
    image, boxes = picture(["first", "second", "third"], size=(400, 240))
    runs = quiet_rows(image)
    for _, top, _, bottom in boxes:
        middle = (top + bottom) / 2
        assert not any(first <= middle <= last for first, last in runs)
    for above, below in pairwise(boxes):
        between = (above[3] + below[1]) / 2
        assert any(first <= between <= last for first, last in runs)


def test_noise_is_no_text_and_text_in_noise_is() -> None:
    noise = Image.effect_noise((300, 300), 8)
    assert sum(last - first for first, last in quiet_rows(noise)) > 250
    ImageDraw.Draw(noise).rectangle((50, 100, 250, 140), fill=255)
    assert not any(first < 100 < last for first, last in quiet_rows(noise))


def marked(size: tuple[int, int], at: tuple[int, int]) -> Image.Image:
    image = Image.new("RGB", size, (250, 250, 250))
    x, y = at
    image.paste((200, 0, 0), (x - 6, y - 6, x + 7, y + 7))
    return image


def centre_of_mark(image: Image.Image) -> tuple[float, float] | None:
    mask = image.getchannel("G").point(lambda level: 255 * (level < 120))
    box = mask.getbbox()
    return None if box is None else ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)


def turned(at: tuple[float, float], size: tuple[int, int], degrees: int) -> tuple[float, float]:
    """Where a point comes to lie when its page is turned clockwise."""
    (x, y), (width, height) = at, size
    return {0: (x, y), 90: (height - y, x), 180: (width - x, height - y), 270: (y, width - x)}[
        degrees
    ]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(40, 700),
    st.integers(40, 3_500),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from(["none", "90", "180", "270"]),
    st.sampled_from([40_000, 250_000]),
    st.sampled_from([1.0, 0.5]),
)
def test_a_mark_is_found_where_it_was_whatever_was_done_to_the_page(
    short: int,
    long: int,
    x_share: float,
    y_share: float,
    orient: str,
    max_pixels: int,
    pixel_factor: float,
) -> None:
    """Turned, scaled, padded and cut: the pixels of every tile map back within a pixel."""
    at = (8 + int(x_share * (short - 17)), 8 + int(y_share * (long - 17)))
    options = PrepareOptions(
        max_pixels=max_pixels,
        min_pixels=4_096,
        encoding=ImageEncoding.PNG,
        orient=orient,  # type: ignore[arg-type]
        max_tiles=12,
        pixel_factor=pixel_factor,
    )
    page = lay_out(marked((short, long), at), PageSize(short, long), options)
    degrees: Degrees = 0 if orient == "none" else int(orient)  # type: ignore[assignment]
    assert page.rotation_applied == degrees
    assert page.source == PageSize(short, long).turned(degrees)
    expected = turned((at[0] + 0.5, at[1] + 0.5), (short, long), degrees)
    assert _seen(page.tiles, expected)


def _seen(tiles: Sequence[object], expected: tuple[float, float]) -> bool:
    """Every tile that shows the whole mark shows it at `expected`; one at least does."""
    seen = 0
    for tile in tiles:
        x0, y0, x1, y1 = tile.shown  # type: ignore[attr-defined]
        x, y = expected
        if not (x0 + 8 <= x <= x1 - 8 and y0 + 8 <= y <= y1 - 8) and len(tiles) > 1:
            continue
        with Image.open(BytesIO(tile.image.data)) as image:  # type: ignore[attr-defined]
            found = centre_of_mark(image.convert("RGB"))
        assert found is not None
        back = tile.placement.to_source(found)  # type: ignore[attr-defined]
        scale = tile.placement.scale_x  # type: ignore[attr-defined]
        assert back == pytest.approx(expected, abs=max(1.0, 1 / scale))
        seen += 1
    return seen > 0


@given(sides, sides, st.sampled_from((250_000, 1_000_000)))
def test_what_is_told_of_a_page_by_its_size_bounds_its_images(
    width: int, height: int, most: int
) -> None:
    source = PageSize(width, height)
    options = PrepareOptions(
        max_pixels=most, min_pixels=1024, encoding=ImageEncoding.PNG, max_tiles=8
    )
    count, size = images(source, options)
    assert 1 <= count <= 8
    assert size.width * size.height <= most
    plan = tiling(source, most, 8)
    assert (count > 1) == (plan is not None and plan.tiles > 1)
    if plan is not None:
        assert len(cut(plan, ())) <= count
        # A tile thinner than models take is padded.
        assert size.width <= max(32, plan.content.width)
        assert size.height <= max(32, plan.content.height)


LEAST = 1 << 18


def shown(size: tuple[int, int], most: int, pixel_factor: float) -> tuple[int, int]:
    """How many images a page is read as, and the pixels of one."""
    options = PrepareOptions(most, LEAST, ImageEncoding.PNG, max_tiles=12)
    count, image = images(PageSize(*size), replace(options, pixel_factor=pixel_factor))
    return count, image.width * image.height


@given(sides, sides, st.sampled_from((LEAST, PIXELS, 3_400_000)), st.floats(0.1, 1))
def test_fewer_pixels_are_never_more_work(
    width: int, height: int, most: int, pixel_factor: float
) -> None:
    count, pixels = shown((width, height), most, 1)
    fewer_count, fewer_pixels = shown((width, height), most, pixel_factor)
    assert fewer_count == count
    assert fewer_pixels <= pixels
    assert fewer_pixels <= max(LEAST, pixel_factor * most)


@pytest.mark.parametrize("size", [(660, 1980), (640, 2000), (2480, 3508)])
def test_a_page_that_is_read_whole_stays_whole_with_half_the_pixels(size: tuple[int, int]) -> None:
    count, pixels = shown(size, PIXELS, 0.5)
    assert count == 1
    assert pixels == pytest.approx(PIXELS / 2, rel=0.01)


def test_an_image_with_the_fewest_pixels_that_a_model_takes_gets_no_fewer() -> None:
    assert shown((2480, 3508), LEAST, 0.5) == shown((2480, 3508), LEAST, 1)


def written(size: tuple[int, int]) -> Image.Image:
    """Lines of text from edge to edge."""
    return picture(["Total amount: 1,284.50 " * 12] * (size[1] // 56 + 1), size)[0]


@pytest.mark.parametrize("orient", ["none", "90"])
@pytest.mark.parametrize("pixel_factor", [1, 0.5])
@pytest.mark.parametrize("size", [(300, 200), (900, 1200), (400, 3_500), (3_000, 250), (60, 1_500)])
def test_a_page_is_prepared_as_it_was_priced(
    size: tuple[int, int], pixel_factor: float, orient: Orient
) -> None:
    options = PrepareOptions(
        250_000,
        40_000,
        ImageEncoding.PNG,
        orient=orient,
        max_tiles=12,
        pixel_factor=pixel_factor,
    )
    count, largest = images(PageSize(*size), options)
    image = written(size)
    page = lay_out(image, PageSize(*size), options)
    prepared = [tile.image.width * tile.image.height for tile in page.tiles]
    assert not page.blank
    assert min(2, count) <= len(prepared) <= count
    pixels = largest.width * largest.height
    assert 0.5 * pixels <= max(prepared) <= 1.02 * pixels
    usual = lay_out(image, PageSize(*size), replace(options, pixel_factor=1.0))
    fewer = sum(prepared) < sum(tile.image.width * tile.image.height for tile in usual.tiles)
    assert lowered(page, options) == fewer
