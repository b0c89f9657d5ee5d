"""Reads one prepared page: asks, watches the stream, parses, and asks again where that helps.

An answer is asked for again, with another sampling, at most once for each reason: it repeated
itself without end, it held nothing but boxes of figures, its JSON did not fit. `attempts` and
`warnings` of the result say so.

What has been streamed cannot be taken back. A caller with `on_text` gets `TextRestart` before
the text of another attempt begins: all text before it is void. The text of the result is the one
that counts; it differs from the streamed text where boxes, repetitions and formats were removed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Literal

from hunyuan_ocr.documents.document import PreparedImage
from hunyuan_ocr.documents.geometry import Polygon
from hunyuan_ocr.engines.base import (
    Engine,
    EngineRequest,
    Finished,
    FinishReason,
    Line,
    TokenUsage,
)
from hunyuan_ocr.errors import AnswerInvalid, EngineUnavailable
from hunyuan_ocr.tasks import extract, parse
from hunyuan_ocr.tasks.catalogue import Generation, Task
from hunyuan_ocr.tasks.prompts import TaskRequest, build_prompt
from hunyuan_ocr.tasks.repetition import RepetitionGuard
from hunyuan_ocr.tasks.special_tokens import neutralise_json, restore_keys

WarningName = Literal["truncated", "repetition", "figures_only", "schema_retry", "retried"]


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text as it was generated."""

    text: str


@dataclass(frozen=True, slots=True)
class TextRestart:
    """All text sent before is void: the page is read again, for the reason given."""

    reason: WarningName


TextEvent = TextPiece | TextRestart
OnText = Callable[[TextEvent], Awaitable[None]]
OnUsage = Callable[[TokenUsage], None]


@dataclass(frozen=True, slots=True)
class Recognition:
    """What was read on a page.

    `lines` in pixels of the prepared image. `value` is the JSON of an extract: with `fields`
    exactly these keys, null for those not on the page. `usage` is the sum over all attempts.
    Warnings, in the order they came up: `repetition` (fell into a loop; `finish_reason` tells
    whether the text is cut for it), `figures_only` (read again as plain text), `schema_retry`
    (the first JSON did not fit), `retried` (with any of these, if the page was read again),
    `truncated` (cut at the token limit).
    """

    text: str
    lines: tuple[Line, ...]
    value: object | None
    finish_reason: FinishReason
    usage: TokenUsage
    warnings: tuple[WarningName, ...]
    attempts: int


async def recognise(
    engine: Engine,
    image: PreparedImage,
    request: TaskRequest,
    *,
    generation: Generation,
    request_id: str,
    max_output_tokens: int,
    on_text: OnText | None = None,
    on_usage: OnUsage | None = None,
) -> Recognition:
    """Read a page; cancelling it cancels the work in the engine.

    `on_usage` hears what each attempt took when it is over, those that failed or were cancelled
    included.

    Raises what the engine raises, `InvalidField` for an extract of nothing, `AnswerInvalid` if
    the JSON does not fit twice.
    """
    schema = request.json_schema
    asked = EngineRequest(
        image=image,
        task=request.task,
        prompt=build_prompt(request, generation),
        max_output_tokens=max_output_tokens,
        request_id=request_id,
        json_schema=None if schema is None else _as_object(neutralise_json(schema)),
    )
    reader = _Reader(engine, asked, on_text, on_usage)
    answer = await reader.read()
    if answer.lines is None and answer.parsed.only_figures and _reads_text(engine):
        prompt = build_prompt(replace(request, task=Task.TEXT), generation)
        answer = await reader.again("figures_only", task=Task.TEXT, prompt=prompt)
    value: object | None = None
    if request.task is Task.EXTRACT:
        answer, value = await _extract(reader, answer, request)
    if answer.reason == "length":
        reader.warn("truncated")
    return _recognition(reader, answer, value)


async def _extract(
    reader: _Reader, answer: _Answer, request: TaskRequest
) -> tuple[_Answer, object | None]:
    """An answer whose JSON fits, and its value; asks once more for one that does not."""
    value, problems = _checked(answer.parsed.value, request)
    if problems:
        answer = await reader.again("schema_retry")
        value, problems = _checked(answer.parsed.value, request)
    if problems:
        raise AnswerInvalid(f"The answer does not fit in {len(problems)} places.")
    return answer, value


def _recognition(reader: _Reader, answer: _Answer, value: object | None) -> Recognition:
    if answer.lines is None:
        text, lines = answer.parsed.text, _in_pixels(answer.parsed.lines, reader.asked.image)
    else:
        text, lines = answer.text.strip(), answer.lines
    return Recognition(
        text=text,
        lines=lines,
        value=value,
        finish_reason=answer.reason,
        usage=reader.usage,
        warnings=tuple(reader.warnings),
        attempts=reader.attempts,
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    """One attempt's answer; `parsed` as the task that was asked for."""

    text: str
    parsed: parse.ParsedAnswer
    reason: FinishReason
    usage: TokenUsage
    lines: tuple[Line, ...] | None = None


@dataclass(slots=True)
class _Reader:
    """The attempts at one page and what they cost."""

    engine: Engine
    asked: EngineRequest
    on_text: OnText | None
    on_usage: OnUsage | None
    attempts: int = 0
    usage: TokenUsage = field(default_factory=TokenUsage)
    warnings: list[WarningName] = field(default_factory=list)

    def warn(self, *names: WarningName) -> None:
        self.warnings += [name for name in names if name not in self.warnings]

    async def read(self) -> _Answer:
        """An answer; one that repeats itself is asked for again, once for the page."""
        answer = await self._attempt()
        if answer.reason != "repetition" or "repetition" in self.warnings:
            return answer
        await self._restart("repetition")
        return await self._attempt()

    async def again(
        self, reason: WarningName, *, task: Task | None = None, prompt: str | None = None
    ) -> _Answer:
        """Another answer, to another question if one is given."""
        await self._restart(reason)
        if task is not None and prompt is not None:
            self.asked = replace(self.asked, task=task, prompt=prompt)
        return await self.read()

    async def _restart(self, reason: WarningName) -> None:
        self.warn(reason, "retried")
        if self.on_text is not None:
            await self.on_text(TextRestart(reason))

    async def _attempt(self) -> _Answer:
        request = replace(self.asked, attempt=self.attempts)
        self.attempts += 1
        answer = await _read_once(self.engine, request, self.on_text, self.on_usage)
        self.usage = TokenUsage(
            self.usage.prompt + answer.usage.prompt, self.usage.output + answer.usage.output
        )
        return answer


async def _read_once(
    engine: Engine, request: EngineRequest, on_text: OnText | None, on_usage: OnUsage | None
) -> _Answer:
    """One stream to its end, or to where it is certain to have none.

    A stream that is closed early reports no usage; its pieces are counted instead, since an
    engine sends one a token. Raises `EngineUnavailable` for a stream that breaks off.
    """
    guard, endless, pieces = RepetitionGuard(), False, 0
    counted: TokenUsage | None = None
    try:
        # Whatever ends the reading, cancellation too, the engine must hear of it.
        async with aclosing(engine.stream(request)) as stream:
            async for event in stream:
                if isinstance(event, Finished):
                    counted = event.usage
                    repeats = event.reason == "repetition"
                    text = guard.trimmed() if repeats else guard.text()
                    parsed = parse.parse(request.task, text)
                    return _Answer(text, parsed, event.reason, counted, event.lines)
                if endless:  # and yet it goes on
                    text = guard.trimmed()
                    usage = TokenUsage(output=pieces)
                    return _Answer(text, parse.parse(request.task, text), "repetition", usage)
                pieces += 1
                endless = guard.feed(event.text)
                if on_text is not None:
                    await on_text(TextPiece(event.text))
    finally:
        if on_usage is not None:
            on_usage(counted or TokenUsage(output=pieces))
    raise EngineUnavailable("The engine's answer broke off.")


def _checked(value: object, request: TaskRequest) -> tuple[object, list[str]]:
    """The value in the caller's spelling, and where it does not fit what was asked for."""
    if extract.too_deep(value):
        value = None
    schema = request.json_schema
    if schema is not None:
        value = restore_keys(value, extract.property_names(schema))
        return value, extract.validate(value, schema)
    if not request.fields:
        return value, []
    value = restore_keys(value, request.fields)
    problems = extract.validate(value, extract.schema_for_fields(request.fields))
    if isinstance(value, dict):
        value = {name: value.get(name) for name in request.fields}
    return value, problems


def _in_pixels(lines: Iterable[parse.ParsedLine], image: PreparedImage) -> tuple[Line, ...]:
    def scaled(polygon: Polygon) -> Polygon:
        return tuple(
            (x * image.width / parse.SCALE, y * image.height / parse.SCALE) for x, y in polygon
        )

    return tuple(Line(line.text, scaled(line.polygon), line.label) for line in lines)


def _reads_text(engine: Engine) -> bool:
    return Task.TEXT in engine.capabilities.tasks


def _as_object(value: object) -> dict[str, object] | None:
    return value if isinstance(value, dict) else None
