"""The shapes of requests and answers, at the edge only."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field

from hunyuan_ocr.documents.document import Detail, Orient
from hunyuan_ocr.reading import PageLine, PageResult
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.traffic.classes import BATCH_ABOVE_PAGES, Priority

_FIELDS_MAX = 100


def _degrees(value: object) -> object:
    """JSON may hold degrees as a number."""
    return str(value) if type(value) is int else value


class ReadOptions(BaseModel):
    """What to do with a document; the same names as JSON members, form fields and query."""

    model_config = ConfigDict(extra="forbid")

    task: Task = Field(Task.TEXT, description="What to read out of the page.")
    pages: str | None = Field(
        None, max_length=1000, description="Which pages, counted from 1.", examples=["1,3-5"]
    )
    password: str | None = Field(None, max_length=1000, description="Password of a PDF.")
    fields: Annotated[list[str], FailFast()] = Field(
        [], max_length=_FIELDS_MAX, description="Names of the fields that `extract` looks for."
    )
    json_schema: dict[str, Any] | None = Field(
        None, description="Schema that the value `extract` answers with must fit."
    )
    instruction: str | None = Field(None, description="Free instruction beside the task.")
    target_language: str | None = Field(
        None, max_length=40, description="Language that `translate` writes.", examples=["en"]
    )
    language_hint: str | None = Field(
        None, max_length=40, description="Language of the page, which steadies mixed pages."
    )
    orient: Annotated[Orient, BeforeValidator(_degrees)] = Field(
        "auto",
        description="How pages are turned, in degrees clockwise after EXIF; `auto` finds pages "
        "that lie on their side or head and turns them upright, `none` turns no page.",
    )
    detail: Detail = Field(
        "auto",
        description="How many pixels of a page are looked at: `high` for small print, `low` for "
        "speed; /v1/options shows the megapixels.",
    )
    allow_degraded: bool = Field(
        True,
        description="Whether the CPU engine may read the page where the service would refuse it "
        "otherwise, if it is set up so; such pages say `degraded`.",
    )
    priority: Priority | None = Field(
        None,
        description="Class of the request: its turn, its longest queue and its default time; "
        f"unset: standard, or batch above {BATCH_ABOVE_PAGES} pages. In the query, of any request, "
        "it is known before the body is sent.",
    )
    timeout_s: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Time for the whole request in seconds; longer is cut to the maximum.",
    )


class ReadBody(ReadOptions):
    """A JSON request: exactly one of `image` and `document`, base64 or a `data:` URL."""

    image: str | None = Field(None, description="Base64 or data URL of an image or document.")
    document: str | None = Field(None, description="The same as `image`, for documents.")


class SimpleBody(ReadBody):
    """The request of /ocr: members that it does not know are ignored."""

    model_config = ConfigDict(extra="ignore")


class SimpleAnswer(BaseModel):
    """The answer of /ocr."""

    text: str = Field(description="The text of all pages.")


class LineOut(BaseModel):
    text: str
    polygon: list[tuple[float, float]] = Field(
        description="Corners in upright source pixels, clockwise from the upper left."
    )
    box: tuple[float, float, float, float] = Field(description="x_min, y_min, x_max, y_max.")
    label: str | None = Field(None, description="Kind of a region of a layout.")


class Problem(BaseModel):
    """RFC 9457 problem details."""

    model_config = ConfigDict(extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    code: str = Field(description="Stable code; the README lists all.")
    detail: str
    request_id: str
    retry_after_s: float | None = None
    queue_position: int | None = Field(
        None, description="Pages that would have been served before, where a queue said no."
    )
    predicted_wait_s: float | None = Field(None, description="How long that would have taken.")


class PageOut(BaseModel):
    index: int = Field(description="Page of the document, counted from 0.")
    status: Literal["ok", "error"]
    engine: str
    text: str
    lines: list[LineOut]
    value: Any | None = Field(None, description="What `extract` found.")
    width: int = Field(description="Source width in pixels, upright and turned.")
    height: int = Field(description="Source height in pixels, upright and turned.")
    scale: float = Field(description="Pixels shown to the model per source pixel.")
    rotation_applied: int = Field(
        description="Degrees clockwise by which the page was turned, after EXIF."
    )
    blank: bool = Field(description="Nothing is on the page: no engine was asked about it.")
    degraded: bool
    finish_reason: str | None = Field(
        description="`stop`; `length` or `repetition` where the text is cut; `blank`."
    )
    warnings: list[str] = Field(
        description="`downscaled`: shown to the model below half its size, ask for more `detail`; "
        "`first_frame_only`: the file holds more pictures; `truncated`: cut at the token limit; "
        "`repetition`, `figures_only`, `schema_retry`, with `retried`: asked again, and why."
    )
    problem: Problem | None = Field(None, description="Why the page could not be read.")


class Usage(BaseModel):
    pages: int
    megapixels: float
    prompt_tokens: int
    output_tokens: int
    queue_ms: float
    engine_ms: float
    total_ms: float


class DocumentOut(BaseModel):
    """The answer of /v1/ocr."""

    request_id: str
    pages_total: int = Field(description="Pages in the document, read or not.")
    truncated: bool = Field(
        description="Whether pages are missing: out of time, service stopping, or the file cut off."
    )
    pages: list[PageOut]
    usage: Usage


def _line_out(line: PageLine) -> LineOut:
    return LineOut(text=line.text, polygon=list(line.polygon), box=line.box, label=line.label)


def page_out(page: PageResult, problem: dict[str, Any] | None) -> PageOut:
    """The page as callers see it; `problem` belongs to it where it failed."""
    return PageOut(
        index=page.index,
        status=page.status,
        engine=page.engine,
        text=page.text,
        lines=[_line_out(line) for line in page.lines],
        value=page.value,
        width=page.width,
        height=page.height,
        scale=page.scale,
        rotation_applied=page.rotation_applied,
        blank=page.blank,
        degraded=page.degraded,
        finish_reason=page.finish_reason,
        warnings=list(page.warnings),
        problem=Problem(**problem) if problem else None,
    )
