"""What is asked of a document, and what comes of its pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from hunyuan_ocr.documents.document import Detail, Orient
from hunyuan_ocr.documents.geometry import Polygon, bounds
from hunyuan_ocr.engines.base import NO_USAGE, TokenUsage
from hunyuan_ocr.errors import OcrError
from hunyuan_ocr.recognise import TextEvent
from hunyuan_ocr.tasks.prompts import TaskRequest
from hunyuan_ocr.traffic.classes import Priority


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One document to read; what is None follows from its pages.

    `arrived_at` is a time of the event loop's clock, in seconds: `timeout_s` counts from it.
    """

    data: bytes
    task: TaskRequest
    request_id: str
    tenant: str
    arrived_at: float
    priority: Priority | None = None
    timeout_s: float | None = None
    pages: str | None = None
    password: str | None = None
    orient: Orient = "auto"
    detail: Detail = "auto"
    allow_degraded: bool = True


@dataclass(frozen=True, slots=True)
class PageLine:
    """A line of text or region of a layout, then with its `label`.

    `polygon` in upright source pixels, clockwise from the upper left.
    """

    text: str
    polygon: Polygon
    label: str | None = None

    @property
    def box(self) -> tuple[float, float, float, float]:
        """(x_min, y_min, x_max, y_max) in upright source pixels."""
        return bounds(self.polygon)


@dataclass(frozen=True, slots=True)
class PageResult:
    """What came of one page; `index` counts from 0 and sizes are upright source pixels.

    `finish_reason` is the engine's, or `blank` for a page that no engine was asked about.
    """

    index: int
    status: Literal["ok", "error"]
    engine: str
    text: str = ""
    lines: tuple[PageLine, ...] = ()
    value: object | None = None
    width: int = 0
    height: int = 0
    scale: float = 1.0
    rotation_applied: int = 0
    blank: bool = False
    degraded: bool = False
    finish_reason: str | None = None
    warnings: tuple[str, ...] = ()
    usage: TokenUsage = NO_USAGE
    error: OcrError | None = None


OnPageText = Callable[[int, TextEvent], Awaitable[None]]


@dataclass(slots=True)
class Reading:
    """An admitted document: iterate `results` for its pages as they finish.

    No page is begun before that. Set `on_text` first to hear the text of each page, by its
    index, as it is generated. `cut_off` says that the file ends before its last page, `priority`
    in which class its pages wait. By `deadline`, of the event loop's clock, all pages are over,
    done or not.
    """

    pages_total: int
    selected: tuple[int, ...]
    cut_off: bool
    priority: Priority
    deadline: float
    results: AsyncIterator[PageResult] = field(init=False)
    on_text: OnPageText | None = None
