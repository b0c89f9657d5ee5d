"""The forms an answer can take; a new one is a class here and a row in FORMATS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import asdict
from typing import Protocol

from hunyuan_ocr.api.context import RequestContext
from hunyuan_ocr.api.problems import problem_body
from hunyuan_ocr.api.schemas import DocumentOut, PageOut, SimpleAnswer, Usage, page_out
from hunyuan_ocr.errors import DeadlineExceeded, Draining
from hunyuan_ocr.reading import PageResult, Reading
from hunyuan_ocr.recognise import TextEvent, TextPiece
from hunyuan_ocr.telemetry.stages import Stage

# A slow reader holds the engine's stream back once this many events wait for it.
_EVENTS_AHEAD = 64


class Format(Protocol):
    """Turns a reading into the bytes of an answer.

    The answer's status is decided when the first chunk is there: what is raised before becomes
    a problem with a status of its own. Forms that are not `streamed` have one chunk.
    """

    streamed: bool

    def chunks(self, reading: Reading, context: RequestContext) -> AsyncGenerator[bytes]: ...


class DocumentJson:
    """All pages and the usage, as one JSON object."""

    streamed = False

    async def chunks(self, reading: Reading, context: RequestContext) -> AsyncGenerator[bytes]:
        pages = await _all_pages(reading)
        answer = DocumentOut(
            request_id=context.request_id,
            pages_total=reading.pages_total,
            truncated=_truncated(reading, pages),
            pages=[_out(page, context) for page in pages],
            usage=_usage(pages, context),
        )
        yield answer.model_dump_json().encode()


class SimpleJson:
    """`{"text": …}`, the shape that /ocr answers with."""

    streamed = False

    async def chunks(self, reading: Reading, context: RequestContext) -> AsyncGenerator[bytes]:
        yield SimpleAnswer(text=_joined(await _all_pages(reading))).model_dump_json().encode()


class Text:
    """The text of the pages that could be read, a blank line between two pages."""

    streamed = False

    async def chunks(self, reading: Reading, context: RequestContext) -> AsyncGenerator[bytes]:
        yield _joined(await _all_pages(reading)).encode()


class Ndjson:
    """A page a line as it finishes, then a line with the usage."""

    streamed = True

    async def chunks(self, reading: Reading, context: RequestContext) -> AsyncGenerator[bytes]:
        done: list[PageResult] = []
        async for page in reading.results:
            _raise_if_alone(page, reading)
            done.append(page)
            line = _out(page, context).model_dump() | {"pages_expected": len(reading.selected)}
            yield json.dumps(line, ensure_ascii=False).encode() + b"\n"
        yield json.dumps(_end(reading, done, context)).encode() + b"\n"


class Sse:
    """Server-sent events: `text` as it is generated, `page` when one is done, `done` at the end.

    After a `restart` the text of that page begins anew: what was sent of it is void.
    """

    streamed = True

    async def chunks(self, reading: Reading, context: RequestContext) -> AsyncGenerator[bytes]:
        events: asyncio.Queue[bytes | PageResult | None] = asyncio.Queue(_EVENTS_AHEAD)

        async def hear(index: int, event: TextEvent) -> None:
            name = "text" if isinstance(event, TextPiece) else "restart"
            await events.put(_event(name, {"index": index, **asdict(event)}))

        async def read() -> None:
            async for page in reading.results:
                await events.put(page)
            await events.put(None)

        reading.on_text = hear
        done: list[PageResult] = []
        reader = asyncio.create_task(read())
        silent = True
        try:
            while (event := await _next(events, reader)) is not None:
                if isinstance(event, PageResult):
                    if silent:
                        _raise_if_alone(event, reading)
                    done.append(event)
                    event = _event("page", _out(event, context).model_dump())
                silent = False
                yield event
            yield _event("done", _end(reading, done, context))
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)


async def _next(
    events: asyncio.Queue[bytes | PageResult | None], reader: asyncio.Task[None]
) -> bytes | PageResult | None:
    """The next event; what ended the reader early is raised here."""
    getting = asyncio.ensure_future(events.get())
    try:
        await asyncio.wait((getting, reader), return_when=asyncio.FIRST_COMPLETED)
        if reader.done() and not getting.done() and events.empty():
            await reader
        return await getting
    finally:
        getting.cancel()


def _event(name: str, data: Mapping[str, object]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _end(
    reading: Reading, done: Sequence[PageResult], context: RequestContext
) -> dict[str, object]:
    return {
        "request_id": context.request_id,
        "pages_total": reading.pages_total,
        "truncated": _truncated(reading, done),
        "usage": _usage(done, context).model_dump(),
    }


JSON = "application/json"
EVENT_STREAM = "text/event-stream"
# In order of preference where a caller accepts anything.
FORMATS: Mapping[str, Format] = {
    JSON: DocumentJson(),
    "text/plain": Text(),
    "text/markdown": Text(),
    "application/x-ndjson": Ndjson(),
    EVENT_STREAM: Sse(),
}


async def _all_pages(reading: Reading) -> list[PageResult]:
    """Every page in order. Where none could be read, the first page's error is the answer."""
    pages = [page async for page in reading.results]
    pages.sort(key=lambda page: page.index)
    if pages and pages[0].error and all(page.error for page in pages):
        raise pages[0].error
    return pages


def _raise_if_alone(page: PageResult, reading: Reading) -> None:
    if page.error and len(reading.selected) == 1:
        raise page.error


def _truncated(reading: Reading, pages: Sequence[PageResult]) -> bool:
    left_out = DeadlineExceeded | Draining
    return reading.cut_off or any(isinstance(page.error, left_out) for page in pages)


def _joined(pages: Sequence[PageResult]) -> str:
    return "\n\n".join(page.text for page in pages if page.status == "ok")


def _out(page: PageResult, context: RequestContext) -> PageOut:
    return page_out(page, problem_body(page.error, context.request_id) if page.error else None)


def _usage(pages: Sequence[PageResult], context: RequestContext) -> Usage:
    return Usage(
        pages=sum(page.status == "ok" for page in pages),
        megapixels=round(sum(page.width * page.height for page in pages) / 1e6, 3),
        prompt_tokens=sum(page.usage.prompt for page in pages),
        output_tokens=sum(page.usage.output for page in pages),
        queue_ms=context.stages.milliseconds(Stage.QUEUE),
        engine_ms=context.stages.milliseconds(Stage.ENGINE),
        total_ms=context.elapsed_ms(),
    )
