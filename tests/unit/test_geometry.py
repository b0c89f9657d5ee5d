"""Points find their way back to the source, whatever the placement."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hunyuan_ocr.documents.geometry import Placement, bounds, clamp, rectangle

coordinates = st.floats(-1e5, 1e5)
scales = st.floats(1e-3, 1e3)
placements = st.builds(Placement, scales, scales, coordinates, coordinates)
points = st.tuples(coordinates, coordinates)


@given(placements, points)
def test_to_prepared_and_back_is_where_it_was(
    placement: Placement, point: tuple[float, float]
) -> None:
    assert placement.to_source(placement.to_prepared(point)) == pytest.approx(point, abs=1e-3)


@given(st.lists(points, min_size=1), st.integers(1, 10_000), st.integers(1, 10_000))
def test_clamped_points_lie_on_the_page_and_points_on_it_stay(
    polygon: list[tuple[float, float]], width: int, height: int
) -> None:
    for before, (x, y) in zip(polygon, clamp(polygon, width, height), strict=True):
        assert 0 <= x <= width
        assert 0 <= y <= height
        if 0 <= before[0] <= width and 0 <= before[1] <= height:
            assert before == (x, y)


@given(coordinates, coordinates, st.floats(0, 1e4), st.floats(0, 1e4))
def test_bounds_of_a_rectangle_are_its_sides(x: float, y: float, w: float, h: float) -> None:
    assert bounds(rectangle(x, y, x + w, y + h)) == (x, y, x + w, y + h)
