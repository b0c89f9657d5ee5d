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
