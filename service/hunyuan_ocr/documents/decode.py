"""Full decode of a picture to upright RGB; runs in worker processes."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

from pi_heif import HeifImageFile
from PIL import Image, JpegImagePlugin, TiffImagePlugin, UnidentifiedImageError

from hunyuan_ocr.documents import colour, heif, jpeg
from hunyuan_ocr.documents.document import DocumentKind, PageSize
from hunyuan_ocr.documents.frame import Frame
from hunyuan_ocr.documents.resize import shrink
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
_SIDEWAYS: Final = frozenset(_UPRIGHT[orientation] for orientation in (5, 6, 7, 8))
# Values of TIFF's Compression tag that Pillow and its libtiff undo.
_TIFF_COMPRESSIONS: Final = frozenset((1, 2, 3, 4, 5, 6, 7, 8, 32771, 32773, 34925, 32946, 50000))
_COMPRESSION, _BITS_PER_SAMPLE, _PLANES, _SAMPLE_FORMAT = 259, 258, 284, 339
_SEPARATE_PLANES, _SIGNED = 2, 2
_FORMATS_OF_MANY_KINDS: Final = frozenset((DocumentKind.TIFF, DocumentKind.BMP))
# A JPEG may hold more pictures too, but those are a camera's previews and depth maps.
_ANIMATED: Final = frozenset(("GIF", "PNG", "WEBP", "AVIF", "HEIF"))


def open_picture(kind: DocumentKind, source: bytes | Path) -> Image.Image:
    """Open a picture without decoding it; Pillow may only use the decoder of `kind`.

    Raises `ImageCorrupt`, and `UnsupportedFormat` for the kinds of TIFF and BMP that cannot be
    decoded. The caller closes.
    """
    file = BytesIO(source) if isinstance(source, bytes) else source
    with _decoding():
        if kind is DocumentKind.HEIC:
            return _open_heic(file)
        try:
            return Image.open(file, formats=["JPEG2000" if kind is DocumentKind.JP2 else kind.name])
        except UnidentifiedImageError:
            if kind not in _FORMATS_OF_MANY_KINDS:
                raise
    raise UnsupportedFormat(f"This kind of {kind.name} is not read: send it as PNG.")


def _open_heic(file: BytesIO | Path) -> Image.Image:
    if isinstance(file, BytesIO) and not heif.is_whole(file.getvalue()):
        raise ImageCorrupt("The file ends too early.")
    image: Image.Image = HeifImageFile(file)
    return image


def load(image: Image.Image, frame: Frame, wanted: PageSize | None = None) -> None:
    """Decode `frame` of `image` in full: what returns is whole, what is not raises.

    With `wanted`, an upright size in pixels, the picture may come smaller than stored but no
    smaller than that: JPEG decodes to a half, quarter or eighth several times faster.

    Raises `ImageCorrupt`, and `UnsupportedFormat` as `open_picture`.
    """
    with _decoding():
        if frame.position:
            image.seek(frame.position)
        # The limits were checked on what our header reader saw; the decoder must see the same.
        _check_size(image, frame)
        if isinstance(image, TiffImagePlugin.TiffImageFile):
            _refuse_misread(image)
        if not isinstance(image, JpegImagePlugin.JpegImageFile):
            image.load()
            _check_size(image, frame)
            return
        if wanted is not None:
            size = _as_tuple(wanted)
            image.draft(None, size[::-1] if frame.orientation >= 5 else size)
        jpeg.load(image)


def has_more_frames(image: Image.Image) -> bool:
    """Whether the file goes on, like an animation, behind the one picture that is read of it."""
    with _decoding():
        return image.format in _ANIMATED and bool(getattr(image, "is_animated", False))


def _refuse_misread(image: TiffImagePlugin.TiffImageFile) -> None:
    """Refuse the TIFFs that Pillow takes for others or cannot decompress."""
    tags = image.tag_v2
    compression, bits = tags.get(_COMPRESSION, 1), tags.get(_BITS_PER_SAMPLE, (1,))
    if compression not in _TIFF_COMPRESSIONS:
        raise UnsupportedFormat(f"TIFF of compression {compression} is not read: use LZW or JPEG.")
    if tags.get(_PLANES) == _SEPARATE_PLANES and len(bits) > 1 and max(bits) > 8:
        raise UnsupportedFormat("TIFF of more than 8 bits in separate planes is not read.")
    if max(bits) == 8 and _SIGNED in tags.get(_SAMPLE_FORMAT, ()):
        raise UnsupportedFormat("TIFF of signed 8-bit samples is not read.")


@contextmanager
def _decoding() -> Iterator[None]:
    """What Pillow warns of is no news to us, and what it raises is `ImageCorrupt`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except _DECODER_ERRORS as error:
        raise ImageCorrupt from error


def _check_size(image: Image.Image, frame: Frame) -> None:
    if image.size not in ((frame.width, frame.height), _as_tuple(frame.upright)):
        raise ImageCorrupt("The headers contradict each other.")


def _as_tuple(size: PageSize) -> tuple[int, int]:
    return size.width, size.height


def to_upright_rgb(image: Image.Image, frame: Frame, wanted: PageSize | None = None) -> Image.Image:
    """A loaded picture as 8-bit sRGB, transposed by its EXIF orientation.

    With `wanted`, an upright size, it is scaled to that: first of all, so that what follows
    has fewer pixels to change. Errors as `colour.flatten`.
    """
    # Pillow transposes TIFF by itself while loading.
    turn = None if image.format == "TIFF" else _UPRIGHT.get(frame.orientation)
    flat = colour.flatten(image)
    if wanted is not None:
        size = _as_tuple(wanted)
        flat = shrink(flat, size[::-1] if turn in _SIDEWAYS else size)
    rgb = colour.to_srgb(flat, image.info.get("icc_profile"))
    return rgb if turn is None else rgb.transpose(turn)
