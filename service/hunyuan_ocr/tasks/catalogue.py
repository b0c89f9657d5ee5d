"""The tasks a caller can ask for."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

# HunyuanOCR's releases, whose prompts and sampling differ.
Generation = Literal["1.0", "1.5"]


class Task(StrEnum):
    TEXT = "text"
    MARKDOWN = "markdown"
    SPOTTING = "spotting"
    LAYOUT = "layout"
    TABLE = "table"
    FORMULA = "formula"
    CHART = "chart"
    SUBTITLE = "subtitle"
    TRANSLATE = "translate"
    EXTRACT = "extract"


# Tasks whose answer for a long page is that of its parts, one after the other. Others ask for one
# thing, a table or a value, that may lie in any part or across them: such pages stay whole.
BY_PARTS = frozenset({Task.TEXT, Task.MARKDOWN, Task.SPOTTING, Task.LAYOUT, Task.TRANSLATE})
# Tasks that a model answers with the place of each line or region.
PLACED = frozenset({Task.SPOTTING, Task.LAYOUT})
# Tasks whose answer has a blank line between two of its parts.
PARAGRAPHS = frozenset({Task.MARKDOWN, Task.LAYOUT, Task.TRANSLATE})
