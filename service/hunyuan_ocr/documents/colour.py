"""From the modes that decoders give to 8-bit sRGB; runs in worker processes."""

from __future__ import annotations

from io import BytesIO
from math import isfinite
from typing import Final

from PIL import Image, ImageChops, ImageCms, ImageStat, TiffImagePlugin

from hunyuan_ocr.errors import ImageCorrupt, UnsupportedFormat

# Cameras and scanners store 10, 12 or 14 bits in 16; white is the top of the depth in use.
_WHITE_LEVELS: Final = (255, 1023, 4095, 16383, 65535)
_WHITE, _BLACK = (255, 255, 255), (0, 0, 0)
_FLAT: Final = ("L", "RGB", "CMYK")
_PROFILE_SPACES: Final = {"L": "GRAY", "RGB": "RGB ", "CMYK": "CMYK"}
_PHOTOMETRIC, _SAMPLE_FORMAT = 262, 339
_WHITE_IS_ZERO, _UNSIGNED = 0, 1
# The least of a profile that says anything: its header and the count of its tags.
_PROFILE_BYTES_MIN = 132


def flatten(image: Image.Image) -> Image.Image:
    """A loaded picture as 8-bit L, RGB or CMYK without transparency.

    Deep greys are scaled rather than clipped. Raises `UnsupportedFormat` for a mode without a
    way to RGB, `ImageCorrupt` for infinite greys and such that are no numbers.
    """
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _to_eight_bits(image)
    if image.has_transparency_data:
        return _composite(image if image.mode == "RGBA" else image.convert("RGBA"))
    if image.mode in _FLAT:
        return image
    try:
        return image.convert("L" if image.mode == "1" else "RGB")
    except ValueError as error:
        raise UnsupportedFormat(f"The colour mode {image.mode} is not read.") from error


def to_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """L, RGB or CMYK as RGB, by its ICC profile where that is sound and says something else."""
    if profile and (source := _usable_profile(profile, image.mode)) is not None:
        try:
            converted = ImageCms.profileToProfile(
                image, source, ImageCms.createProfile("sRGB"), outputMode="RGB"
            )
        except (ImageCms.PyCMSError, ValueError, OSError):
            converted = None
        if converted is not None:
            return converted
    return image if image.mode == "RGB" else image.convert("RGB")


def is_srgb(image: Image.Image) -> bool:
    """Whether pixels of this picture mean what they do without its profile."""
    profile = image.info.get("icc_profile")
    return not profile or _usable_profile(profile, image.mode) is None


def _usable_profile(profile: bytes, mode: str) -> ImageCms.ImageCmsProfile | None:
    """The profile, unless it is broken, meant for other colours, or sRGB itself."""
    if len(profile) < _PROFILE_BYTES_MIN or profile[16:20].decode("latin-1") != _PROFILE_SPACES.get(
        mode
    ):
        return None
    try:
        opened = ImageCms.ImageCmsProfile(BytesIO(profile))
        description = ImageCms.getProfileDescription(opened)
    except (ImageCms.PyCMSError, ValueError, OSError):
        return None
    return None if description.startswith("sRGB") else opened


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Grey of any depth as 0 to 255, white as 255."""
    tags = image.tag_v2 if isinstance(image, TiffImagePlugin.TiffImageFile) else {}
    is_unsigned = tags.get(_SAMPLE_FORMAT, (_UNSIGNED,))[0] == _UNSIGNED
    deep = image if image.mode in ("I", "F") else image.convert("I")
    low, high = (float(level) for level in deep.getextrema())  # type: ignore[arg-type]
    if deep.mode == "I" and is_unsigned and low < 0:
        # Pillow knows signed numbers only; the top byte of each is its grey.
        grey = Image.frombytes("L", deep.size, deep.tobytes()[3::4])
    else:
        grey = _scaled(deep, low, high)
    # Pillow turns paper white for shallow pixels alone.
    return ImageChops.invert(grey) if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO else grey


def _scaled(deep: Image.Image, low: float, high: float) -> Image.Image:
    black, white = _levels(low, high, fractional=deep.mode == "F")
    if not isfinite(white - black):
        raise ImageCorrupt("The picture holds values that are not numbers.")
    scale = 255.0 / (white - black)
    if deep.mode == "I" and low >= 0 and high <= _WHITE_LEVELS[-1]:
        greys = [min(255, int(level * scale)) for level in range(_WHITE_LEVELS[-1] + 1)]
        return deep.point(greys, "L")
    return deep.convert("F").point(lambda level: level * scale - black * scale).convert("L")


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
    if alpha.getextrema() in ((255, 255), (0, 0)):
        return image.convert("RGB")  # writers that know no transparency leave it at 0
    visible = alpha.point(lambda opacity: 255 * (opacity > 127))
    share = ImageStat.Stat(visible).mean[0] / 255
    # Mostly opaque pictures bring their own background; the rest is glyphs on nothing.
    glyphs_are_light = 0 < share < 0.5 and ImageStat.Stat(image.convert("L"), visible).mean[0] > 127
    background = Image.new("RGB", image.size, _BLACK if glyphs_are_light else _WHITE)
    background.paste(image, mask=alpha)
    return background
