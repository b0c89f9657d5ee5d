"""Full decode of a picture to upright RGB; runs in worker processes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

from PIL import Image, ImageStat

from hunyuan_ocr.documents.document import DocumentKind, PageSize
from hunyuan_ocr.documents.header import Frame
from hunyuan_ocr.errors import ImageCorrupt, UnsupportedFormat

# What Pillow's decoders are known to raise on broken files.
_DECODER_ERRORS: Final = (
    OSError,
    RuntimeError,
    SyntaxError,
    ValueError,
    EOFError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    struct.error,
    zlib.error,
)
_UPRIGHT: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Cameras and scanners store 10, 12 or 14 bits in 16; white is the top of the depth in use.
_WHITE_LEVELS: Final = (255, 1023, 4095, 16383, 65535)
_WHITE, _BLACK = (255, 255, 255), (0, 0, 0)


def open_picture(kind: DocumentKind, source: bytes | Path) -> Image.Image:
    """Open a picture without decoding it; Pillow may only use the decoder of `kind`.

    Raises `ImageCorrupt`. The caller closes.
    """
    file = BytesIO(source) if isinstance(source, bytes) else source
    with _decoder_errors():
        return Image.open(file, formats=[kind.name])


def load(image: Image.Image, frame: Frame, wanted: PageSize | None = None) -> None:
    """Decode `frame` of `image` in full: what returns is whole, what is not raises.

    With `wanted`, an upright size in pixels, the picture may come smaller than stored but no
    smaller than that: JPEG decodes to a half, quarter or eighth several times faster.

    Raises `ImageCorrupt`.
    """
    with _decoder_errors():
        if frame.position:
            image.seek(frame.position)
        # The limits were checked on what our header reader saw; the decoder must see the same.
        if image.size not in (_stored(frame), _as_tuple(frame.upright)):
            raise ImageCorrupt("The headers contradict each other.")
        if wanted is not None and image.format in ("JPEG", "MPO"):
            width, height = _as_tuple(wanted)
            image.draft(None, (height, width) if frame.orientation >= 5 else (width, height))
        image.load()


@contextmanager
def _decoder_errors() -> Iterator[None]:
    try:
        yield
    except _DECODER_ERRORS as error:
        raise ImageCorrupt from error


def _stored(frame: Frame) -> tuple[int, int]:
    return frame.width, frame.height


def _as_tuple(size: PageSize) -> tuple[int, int]:
    return size.width, size.height


def to_upright_rgb(image: Image.Image, frame: Frame) -> Image.Image:
    """A loaded picture as 8-bit RGB, transposed by its EXIF orientation."""
    rgb = _to_rgb(image)
    # Pillow transposes TIFF by itself while loading.
    if image.format == "TIFF" or frame.orientation not in _UPRIGHT:
        return rgb
    return rgb.transpose(_UPRIGHT[frame.orientation])


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _to_eight_bits(image).convert("RGB")
    if image.has_transparency_data:
        return _composite(image.convert("RGBA"))
    try:
        return image.convert("RGB")
    except ValueError as error:
        raise UnsupportedFormat(f"The colour mode {image.mode} is not read.") from error


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Grey of any depth scaled to 0 to 255, rather than clipped to white."""
    deep = image if image.mode in ("I", "F") else image.convert("I")
    low, high = deep.getextrema()
    black, white = _levels(float(low), float(high), fractional=image.mode == "F")  # type: ignore[arg-type]
    scale = 255.0 / (white - black)
    return deep.convert("F").point(lambda grey: grey * scale - black * scale).convert("L")


def _levels(low: float, high: float, *, fractional: bool) -> tuple[float, float]:
    """The values that become black and white, from the darkest and the lightest present."""
    if fractional and low >= 0 and high <= 1:
        return 0.0, 1.0
    if low >= 0 and high <= _WHITE_LEVELS[-1]:
        return 0.0, float(next(level for level in _WHITE_LEVELS if high <= level))
    return (low, high) if high > low else (low, low + 1.0)


def _composite(image: Image.Image) -> Image.Image:
    """Lay RGBA on the background that its glyphs stand out from."""
    alpha = image.getchannel("A")
    if alpha.getextrema() == (255, 255):
        return image.convert("RGB")
    visible = alpha.point(lambda opacity: 255 * (opacity > 127))
    share = ImageStat.Stat(visible).mean[0] / 255
    # Mostly opaque pictures bring their own background; the rest is glyphs on nothing.
    glyphs_are_light = 0 < share < 0.5 and ImageStat.Stat(image.convert("L"), visible).mean[0] > 127
    background = Image.new("RGB", image.size, _BLACK if glyphs_are_light else _WHITE)
    background.paste(image, mask=alpha)
    return background
