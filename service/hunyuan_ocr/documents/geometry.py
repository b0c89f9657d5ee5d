"""Points, and the way from the prepared image's pixels back to the upright source's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Point = tuple[float, float]
Polygon = tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """prepared = source * scale + offset, per axis; scales are positive.

    `scale_x`, `scale_y` are prepared pixels per source pixel, offsets are prepared pixels.
    """

    scale_x: float = 1.0
    scale_y: float = 1.0
    offset_x: float = 0.0
    offset_y: float = 0.0

    def to_source(self, point: Point) -> Point:
        """Map a point of the prepared image to upright source pixels."""
        x, y = point
        return (x - self.offset_x) / self.scale_x, (y - self.offset_y) / self.scale_y

    def to_prepared(self, point: Point) -> Point:
        """Map a point in upright source pixels to the prepared image."""
        x, y = point
        return x * self.scale_x + self.offset_x, y * self.scale_y + self.offset_y


def clamp(polygon: Iterable[Point], width: int, height: int) -> Polygon:
    """Move points that lie outside a page of `width` x `height` pixels to its edge."""
    return tuple((min(max(x, 0.0), width), min(max(y, 0.0), height)) for x, y in polygon)


def bounds(polygon: Iterable[Point]) -> tuple[float, float, float, float]:
    """The axis-parallel box (x_min, y_min, x_max, y_max) around a polygon."""
    xs, ys = zip(*polygon, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def rectangle(x_min: float, y_min: float, x_max: float, y_max: float) -> Polygon:
    """The box as a polygon, clockwise from its upper left corner."""
    return (x_min, y_min), (x_max, y_min), (x_max, y_max), (x_min, y_max)
