"""From a page's size to the size an engine wants: shrunk to fit, padded when tiny."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, sqrt

from PIL import Image, ImageStat

from hunyuan_ocr.documents.document import PageSize
from hunyuan_ocr.documents.geometry import Placement

# Vision models cut images into patches of about this many pixels and refuse thinner ones,
# and those that resize by themselves refuse slimmer ones.
_MIN_SIDE_PX = 32
_MAX_ASPECT = 100


@dataclass(frozen=True, slots=True)
class Fit:
    """The page drawn as `content` in the middle of a `canvas`; both in pixels."""

    content: PageSize
    canvas: PageSize

    @property
    def offset(self) -> tuple[int, int]:
        """Where the content's upper left corner lies on the canvas, in pixels."""
        return (
            (self.canvas.width - self.content.width) // 2,
            (self.canvas.height - self.content.height) // 2,
        )

    def placement(self, source: PageSize) -> Placement:
        """The way from pixels of `source` to pixels of the canvas."""
        x, y = self.offset
        return Placement(
            scale_x=self.content.width / source.width,
            scale_y=self.content.height / source.height,
            offset_x=x,
            offset_y=y,
        )


def fit(source: PageSize, min_pixels: int, max_pixels: int) -> Fit:
    """How a page of size `source` is brought to between `min_pixels` and `max_pixels`.

    The content is shrunk when the page has too many pixels and never enlarged: a page with too
    few, or slimmer than models take, is padded. The upper bound always holds, the lower one
    where it is at most half of the upper.
    """
    width = max(source.width, -(-source.height // _MAX_ASPECT), _MIN_SIDE_PX)
    height = max(source.height, -(-source.width // _MAX_ASPECT), _MIN_SIDE_PX)
    content = source
    if width * height > max_pixels:
        scale = sqrt(max_pixels / (width * height))
        content = _scaled(source.width, source.height, scale)
        width = max(int(width * scale), content.width)
        height = min(max(int(height * scale), content.height), max_pixels // width)
        content = PageSize(content.width, min(content.height, height))
    elif width * height < min_pixels:
        width = max(width, isqrt(min_pixels))
        height = min(max(height, -(-min_pixels // width)), max_pixels // width)
    return Fit(content, PageSize(width, height))


def _scaled(width: int, height: int, scale: float) -> PageSize:
    return PageSize(max(1, int(width * scale)), max(1, int(height * scale)))


def shrink(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Scale `image` (8-bit, no palette) to `size`, (width, height) in pixels.

    Boxes of whole pixels come first where the gap is wide, then a filter as narrow as the rest
    of the way allows: text reads as well as after Lanczos's, at a fraction of its time
    (`make figure NAME=prepare`).
    """
    if image.size == size:
        return image
    return image.resize(size, Image.Resampling.HAMMING, reducing_gap=1.5)


def draw(image: Image.Image, target: Fit) -> Image.Image:
    """Scale `image` (RGB) to the content's size and lay it on the canvas, in its edge colour."""
    image = shrink(image, (target.content.width, target.content.height))
    if target.canvas == target.content:
        return image
    canvas = Image.new(image.mode, (target.canvas.width, target.canvas.height), _edge_colour(image))
    canvas.paste(image, target.offset)
    return canvas


def _edge_colour(image: Image.Image) -> tuple[int, ...]:
    """The median colour along the border: padding in it looks like more of the page."""
    width, height = image.size
    border = Image.new("L", image.size, 255)
    if width > 2 and height > 2:
        border.paste(0, (1, 1, width - 1, height - 1))
    return tuple(ImageStat.Stat(image, border).median)
