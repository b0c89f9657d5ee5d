"""From the pixels of a page to the images an engine reads: turned, scaled, cut, encoded."""

from __future__ import annotations

from io import BytesIO
from typing import Final

from PIL import Image

from hunyuan_ocr.documents import bundled
from hunyuan_ocr.documents.document import (
    Degrees,
    ImageEncoding,
    PageSize,
    PreparedImage,
    PreparedPage,
    PreparedTile,
    PrepareOptions,
)
from hunyuan_ocr.documents.geometry import Placement
from hunyuan_ocr.documents.resize import draw, fit, shrink
from hunyuan_ocr.documents.tile import Span, Tiling, cut, quiet_rows, tiling

# JPEG at this quality without subsampling keeps strokes of coloured text intact.
_SAVE_OPTIONS: Final[dict[ImageEncoding, dict[str, object]]] = {
    ImageEncoding.JPEG: {"quality": 92, "subsampling": 0},
    ImageEncoding.PNG: {"compress_level": 1},
    ImageEncoding.BMP: {},
}
_TURNS: Final = {
    90: Image.Transpose.ROTATE_270,  # Pillow's turns are counterclockwise
    180: Image.Transpose.ROTATE_180,
    270: Image.Transpose.ROTATE_90,
}
_FIXED: Final[dict[str, Degrees]] = {"none": 0, "90": 90, "180": 180, "270": 270}


def content_size(source: PageSize, options: PrepareOptions) -> PageSize:
    """The size in pixels at which the whole page is needed, however it is turned later."""
    if plan := tiling(source, options.max_pixels, options.max_tiles):
        return plan.content
    return fit(source, options.min_pixels, options.image_pixels).content


def images(source: PageSize, options: PrepareOptions) -> tuple[int, PageSize]:
    """How many images a page becomes, at most, and the size of the largest in pixels."""
    plan = tiling(source, options.max_pixels, options.max_tiles)
    count, part = (plan.tiles, plan.tile) if plan else (1, source)
    return count, fit(part, options.min_pixels, options.image_pixels).canvas


def lowered(page: PreparedPage, options: PrepareOptions) -> bool:
    """Whether a page is shown with fewer pixels than it would be for a `pixel_factor` of 1."""
    part = page.source
    plan = tiling(part, options.max_pixels, options.max_tiles)
    if plan and len(page.tiles) > 1:
        part = plan.tile
    return options.image_pixels < min(options.max_pixels, part.width * part.height)


def lay_out(
    image: Image.Image,
    source: PageSize,
    options: PrepareOptions,
    untouched: PreparedImage | None = None,
) -> PreparedPage:
    """Make a page ready from its pixels, RGB of `content_size` or larger, EXIF applied.

    `untouched` is the page as it came, for an engine that takes it so: it is forwarded where
    the page needs no change.
    """
    content = content_size(source, options)
    image = shrink(image, (content.width, content.height))
    blank = _is_blank(image)
    turn = _turn(image, options, blank=blank)
    if turn:
        image, source = image.transpose(_TURNS[turn]), source.turned(turn)
    plan = tiling(source, options.max_pixels, options.max_tiles)
    if plan and not blank and (spans := _spans(image, plan, options)):
        tiles = tuple(_tile(image, source, plan, span, options) for span in spans)
        return PreparedPage(tiles, source, turn)
    target = fit(source, options.min_pixels, options.image_pixels)
    if untouched is None or turn or target.canvas != source:
        untouched = _encode(draw(image, target), options.encoding)
    shown = (0, 0, source.width, source.height)
    whole = PreparedTile(untouched, target.placement(source), shown)
    return PreparedPage((whole,), source, turn, blank=blank)


def _is_blank(image: Image.Image) -> bool:
    if not bundled.installed():
        return False
    from hunyuan_ocr.documents.ink import is_blank

    return is_blank(image)


def _turn(image: Image.Image, options: PrepareOptions, *, blank: bool) -> Degrees:
    if options.orient != "auto":
        return _FIXED[options.orient]
    if blank or not bundled.installed():
        return 0
    from hunyuan_ocr.documents.orient import turn_needed

    return turn_needed(image)


def _spans(image: Image.Image, plan: Tiling, options: PrepareOptions) -> tuple[Span, ...]:
    """Where the tiles lie along the page; none where cutting would break lines for good."""
    rows = image if plan.down else image.transpose(Image.Transpose.TRANSPOSE)
    spans = cut(plan, quiet_rows(rows))
    overlapping = any(start < spans[at][1] for at, (start, _) in enumerate(spans[1:]))
    # A cut from top to bottom halves every line: only their places tell which halves belong.
    return () if overlapping and not plan.down and not options.placed else spans


def _tile(
    image: Image.Image, source: PageSize, plan: Tiling, span: Span, options: PrepareOptions
) -> PreparedTile:
    start, end = span
    box = (0, start, image.width, end) if plan.down else (start, 0, end, image.height)
    part = image.crop(box)
    size = PageSize(*part.size)
    target = fit(size, options.min_pixels, options.image_pixels)
    scale_x, scale_y = image.width / source.width, image.height / source.height
    shown = (box[0] / scale_x, box[1] / scale_y, box[2] / scale_x, box[3] / scale_y)
    within = target.placement(size)
    placement = Placement(
        scale_x=scale_x * within.scale_x,
        scale_y=scale_y * within.scale_y,
        offset_x=within.offset_x - box[0] * within.scale_x,
        offset_y=within.offset_y - box[1] * within.scale_y,
    )
    return PreparedTile(_encode(draw(part, target), options.encoding), placement, shown)


def _encode(image: Image.Image, encoding: ImageEncoding) -> PreparedImage:
    image.info.clear()  # a profile or orientation of the source would be wrong by now
    buffer = BytesIO()
    image.save(buffer, encoding.name, **_SAVE_OPTIONS[encoding])
    return PreparedImage(buffer.getvalue(), encoding.value, image.width, image.height)
