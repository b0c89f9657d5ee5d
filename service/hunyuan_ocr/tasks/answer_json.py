"""JSON out of a model's answer: fenced, wrapped in prose, cut off or slightly broken.

Nothing here raises, whatever the answer, and the time is linear in its length: a decode that
fails costs a scan, so failures are counted and their number is bounded.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator

# Answers hold one broken item or two; more means that this is not JSON.
MAX_FAILURES = 64

# What follows a backslash in JSON the model wrote. `\b` and `\f` are taken for LaTeX (`\beta`,
# `\frac`), since no page holds backspaces or form feeds; lone surrogates can't be encoded.
_ESCAPE = re.compile(
    r"""\\(?:
        (?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})
      | (?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})
      | (?P<good>["\\/nrt]|u[0-9a-fA-F]{4})
      | )""",
    re.VERBOSE,
)
_OBJECT = re.compile(r'\{\s*["}]')
_VALUE = re.compile(r'\{\s*["}]|\[\s*[\[{"\]\d-]')


def _repair(match: re.Match[str]) -> str:
    if match["lone"]:
        return r"\ufffd"
    return match[0] if match["pair"] or match["good"] else r"\\"


def _constant(name: str) -> float:
    raise ValueError(name)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("not finite")
    return number


# strict=False: the model writes line breaks inside strings. NaN and infinities can't be sent on.
_DECODER = json.JSONDecoder(strict=False, parse_constant=_constant, parse_float=_finite)


def _decode(text: str, start: int) -> tuple[object, int] | None:
    """The value that begins at `start` and where it ends; None where it is broken."""
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None


def repaired(answer: str) -> str:
    """The answer with the escapes that the model gets wrong made valid."""
    return _ESCAPE.sub(_repair, answer) if "\\" in answer else answer


def objects(answer: str) -> Iterator[dict[str, object]]:
    """Every complete object of an answer, outermost first in order; broken ones are left out.

    An array cut off at the token limit gives its complete items.
    """
    text, position, failures = repaired(answer), 0, 0
    while failures < MAX_FAILURES and (match := _OBJECT.search(text, position)):
        decoded = _decode(text, match.start())
        if decoded is None:
            failures += 1
            position = match.start() + 1
        else:
            value, position = decoded
            if isinstance(value, dict):
                yield value


def value(answer: str) -> object | None:
    """The first object or array of an answer; None if there is none or it is broken.

    What stands inside a broken object is not taken for the answer.
    """
    text, position, failures = repaired(answer), 0, 0
    while failures < MAX_FAILURES and (match := _VALUE.search(text, position)):
        decoded = _decode(text, match.start())
        if decoded is not None:
            return decoded[0]
        if match[0].startswith("{"):
            return None
        failures += 1
        position = match.start() + 1
    return None
