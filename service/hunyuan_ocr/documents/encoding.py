"""Base64 as people send it: lenient in spelling, strict in content."""

from __future__ import annotations

import binascii
import re
from contextlib import suppress

import pybase64

from hunyuan_ocr.errors import BodyTooLarge, EmptyBody, InvalidBase64, UrlRefused

_WHITESPACE = b" \t\r\n\f\v"
_FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
_DATA_URL = re.compile(r"\s*data:[^,]{0,256}?;\s*base64\s*,", re.IGNORECASE)
_PATH_CHARACTERS_MAX = 4096
# Any path a person would type. `/9j/` is how every base64 JPEG starts, and no other format's
# base64 starts with a slash.
_PATH = re.compile(
    r"""\s*(?: /(?!9j/) | \.{1,2}[/\\] | ~ | \\ | [A-Za-z]:[/\\]
          | [^\n]*\.[A-Za-z0-9]{1,5}\s*\Z )""",
    re.VERBOSE,
)


def decode_base64(text: str, max_bytes: int) -> bytes:
    """Decode base64 or a `data:` URL of at most `max_bytes` bytes.

    Whitespace, the URL-safe alphabet, missing `=` and a `data:` prefix are accepted.

    Raises `UrlRefused` for URLs and file paths, `BodyTooLarge` (before any decoding),
    `EmptyBody`, and `InvalidBase64` for all else that is not base64.
    """
    _refuse_urls_and_paths(text)
    prefix = _DATA_URL.match(text)
    try:
        digits = (text[prefix.end() :] if prefix else text).encode("ascii")
    except UnicodeEncodeError:
        raise InvalidBase64("There are characters outside the base64 alphabet.") from None
    if _decoded_bytes_min(digits) > max_bytes:  # unless much of it is whitespace
        digits = _normalise(digits)
        if _decoded_bytes_min(digits) > max_bytes:
            raise BodyTooLarge
    data = _decode(digits)
    if not data:
        raise EmptyBody
    if len(data) > max_bytes:
        raise BodyTooLarge
    return data


def _decoded_bytes_min(digits: bytes) -> int:
    return len(digits) * 3 // 4 - 2


def _decode(digits: bytes) -> bytes:
    """Most senders spell it the standard way: those pay for one pass over the digits."""
    with suppress(binascii.Error):
        return _decode_strictly(digits)
    try:
        return _decode_strictly(_normalise(digits))
    except binascii.Error:
        raise InvalidBase64 from None


def _decode_strictly(digits: bytes) -> bytes:
    if len(digits) % 4 or digits.endswith(b"==="):  # the decoder lets some of it pass
        raise binascii.Error
    return pybase64.b64decode(digits, validate=True)


def _refuse_urls_and_paths(text: str) -> None:
    if _SCHEME.match(text) or (len(text) <= _PATH_CHARACTERS_MAX and _PATH.match(text)):
        raise UrlRefused


def _normalise(digits: bytes) -> bytes:
    """To one spelling: standard alphabet, no whitespace, padded. Copies only what needs it."""
    if any(digits.find(space) >= 0 for space in _WHITESPACE):
        digits = digits.translate(None, _WHITESPACE)
    if b"-" in digits or b"_" in digits:
        if b"+" in digits or b"/" in digits:
            raise InvalidBase64("The standard and the URL-safe alphabet are mixed.")
        digits = digits.translate(_FROM_URL_SAFE)
    missing = -len(digits) % 4
    return digits + b"=" * missing if missing in (1, 2) else digits
