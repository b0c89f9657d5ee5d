"""Keeps text that others wrote from being read as the model's control tokens.

HunyuanOCR's tokenizers (1.0 and 1.5) spell every special token `<｜…｜>` with full-width bars
(U+FF5C), for example `<｜hy_User｜>` or `<｜hy_place▁holder▁no▁100｜>` (`▁` is U+2581). vLLM
tokenizes user text with them enabled: a caller who types the image-start token kills the native
engine, one who types a role token forges a turn.

The rule is on the shape, not on a list, so tokens that a later revision adds are covered too,
and so are spellings with a space where the token has `▁`. `<quad>`, `<ref>`, `<pos_12>`,
`<hy-meta>` and `<|…|>` are plain text to these tokenizers and are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_OPENING = "<｜"
# The name holds no `<`, so no scan crosses the next opening: linear in the text.
_SPECIAL = re.compile(r"<(?=｜[^｜<>]*｜>)")


def neutralise(text: str) -> str:
    """Put a space behind the `<` of every special token; idempotent.

    Text without one is returned as the same object. The space is visible on purpose: an
    invisible character would reach logs and answers unseen.
    """
    return _SPECIAL.sub("< ", text) if _OPENING in text else text


def neutralise_json(value: object) -> object:
    """`neutralise` for all strings and keys of a decoded JSON value, which is not changed.

    Recurses once a level: the depth must have been bounded before (`extract.schema_problems`).
    """
    match value:
        case str():
            return neutralise(value)
        case list():
            return [neutralise_json(item) for item in value]
        case dict():
            return {neutralise(str(key)): neutralise_json(item) for key, item in value.items()}
        case _:
            return value


def restore_keys(value: object, names: Iterable[str]) -> object:
    """Give the keys of an answer back the spelling that the caller used in `names`.

    Recurses once a level, like `neutralise_json`.
    """
    spelling = {safe: name for name in names if (safe := neutralise(name)) is not name}
    return _respelt(value, spelling) if spelling else value


def _respelt(value: object, spelling: Mapping[str, str]) -> object:
    if isinstance(value, list):
        return [_respelt(item, spelling) for item in value]
    if isinstance(value, dict):
        return {spelling.get(key, key): _respelt(item, spelling) for key, item in value.items()}
    return value
