"""Which of our media types an Accept header wants."""

from __future__ import annotations

from collections.abc import Sequence

from hunyuan_ocr.errors import NotAcceptable


def choose(accept: str, offered: Sequence[str]) -> str:
    """The offered media type that `accept` wants most; the earlier on a tie (RFC 9110, 12.5.1).

    A missing or unreadable header accepts anything. Raises NotAcceptable.
    """
    ranges = [_parse(item) for item in accept.split(",") if item.strip()]
    if not ranges:
        return offered[0]
    best = max(offered, key=lambda media_type: _quality(media_type, ranges))
    if _quality(best, ranges) <= 0:
        raise NotAcceptable(f"offered: {', '.join(offered)}")
    return best


def _parse(item: str) -> tuple[str, float]:
    media_range, *parameters = (part.strip().lower() for part in item.split(";"))
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                quality = float(value)
            except ValueError:
                quality = 0.0
    return media_range, quality


def _quality(media_type: str, ranges: Sequence[tuple[str, float]]) -> float:
    """The quality of the most specific range that fits."""
    family = media_type.split("/")[0] + "/*"
    for wanted in (media_type, family, "*/*"):
        for media_range, quality in ranges:
            if media_range == wanted:
                return quality
    return 0.0
