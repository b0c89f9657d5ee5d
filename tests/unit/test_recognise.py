"""The loop around one page: retries, warnings, usage, and streams that are always closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hunyuan_ocr.documents.document import PreparedImage
from hunyuan_ocr.documents.geometry import rectangle
from hunyuan_ocr.engines.base import (
    Engine,
    EngineEvent,
    EngineRequest,
    Finished,
    Line,
    TextDelta,
    TokenUsage,
)
from hunyuan_ocr.errors import AnswerInvalid, EngineUnavailable, InvalidField
from hunyuan_ocr.recognise import (
    Recognition,
    TextEvent,
    TextPiece,
    TextRestart,
    recognise,
)
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.tasks.prompts import TaskRequest

IMAGE = PreparedImage(b"", "image/png", width=200, height=50)
Script = Sequence[EngineEvent | Exception]


class ScriptedEngine:
    """Answers each request with the next script."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.requests: list[EngineRequest] = []
        self.open = 0
        self.capabilities = SimpleNamespace(tasks=frozenset(Task))

    async def stream(self, request: EngineRequest) -> AsyncIterator[EngineEvent]:
        self.requests.append(request)
        self.open += 1
        try:
            for event in self.scripts.pop(0):
                await asyncio.sleep(0)
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.open -= 1


def says(text: str, reason: Any = "stop", lines: tuple[Line, ...] | None = None) -> Script:
    return [TextDelta(text), Finished(reason, TokenUsage(100, 7), lines)]


LOOP: Script = [TextDelta("foo ")] * 3000 + [Finished("length")]


async def run(
    engine: ScriptedEngine, request: TaskRequest, seen: list[TextEvent] | None = None
) -> Recognition:
    async def on_text(event: TextEvent) -> None:
        assert seen is not None
        seen.append(event)

    try:
        return await recognise(
            cast("Engine", engine),
            IMAGE,
            request,
            generation="1.5",
            request_id="r",
            max_output_tokens=99,
            on_text=None if seen is None else on_text,
        )
    finally:
        assert engine.open == 0, "a stream was left open"


async def test_a_plain_page() -> None:
    engine = ScriptedEngine(says("发票"))
    read = await run(engine, TaskRequest(Task.TEXT))
    assert read == Recognition("发票", (), None, "stop", TokenUsage(100, 7), (), 1)
    assert engine.requests[0].prompt == "提取图中的文字。"
    assert engine.requests[0].attempt == 0


async def test_special_tokens_on_a_page_are_text_like_any_other() -> None:
    written = "<｜hy_User｜> 12 <｜hy_place▁holder▁no▁100｜>"
    assert (await run(ScriptedEngine(says(written)), TaskRequest(Task.TEXT))).text == written


async def test_lines_come_in_pixels_with_their_labels() -> None:
    spotted = await run(ScriptedEngine(says("a(0,0),(500,1000)")), TaskRequest(Task.SPOTTING))
    assert spotted.lines == (Line("a", rectangle(0, 0, 100, 50)),)
    raw = '[{"layout_type": "title", "bbox": "(0,0),(500,1000)", "text": "a"}]'
    layout = await run(ScriptedEngine(says(raw)), TaskRequest(Task.LAYOUT))
    assert layout.lines == (Line("a", rectangle(0, 0, 100, 50), "title"),)


async def test_lines_of_the_engine_are_used_as_they_are() -> None:
    line = Line("f(1,2),(3,4)", rectangle(1, 2, 3, 4))
    read = await run(ScriptedEngine(says(line.text, lines=(line,))), TaskRequest(Task.SPOTTING))
    assert (read.text, read.lines) == (line.text, (line,))


async def test_a_loop_is_stopped_and_read_again() -> None:
    engine, seen = ScriptedEngine(LOOP, says("good")), list[TextEvent]()
    read = await run(engine, TaskRequest(Task.TEXT), seen)
    assert (read.text, read.finish_reason, read.attempts) == ("good", "stop", 2)
    assert read.warnings == ("repetition", "retried")
    assert [request.attempt for request in engine.requests] == [0, 1]
    stopped_after = len(seen) - 2
    assert stopped_after < 1000
    assert read.usage == TokenUsage(100, 7 + stopped_after)
    assert seen[-2:] == [TextRestart("repetition"), TextPiece("good")]


async def test_two_loops_give_the_text_before_them() -> None:
    read = await run(ScriptedEngine(LOOP, [TextDelta("head "), *LOOP]), TaskRequest(Task.TEXT))
    assert (read.text, read.finish_reason, read.attempts) == ("head foo", "repetition", 2)


async def test_the_engines_own_detection_counts() -> None:
    engine = ScriptedEngine(says("a a", "repetition"), says("a"))
    read = await run(engine, TaskRequest(Task.TEXT))
    assert (read.text, read.warnings) == ("a", ("repetition", "retried"))


async def test_an_answer_that_ends_by_itself_is_not_a_loop() -> None:
    read = await run(ScriptedEngine(says("." * 9000)), TaskRequest(Task.TEXT))
    assert (len(read.text), read.warnings) == (9000, ())


async def test_a_cut_answer_says_so() -> None:
    read = await run(ScriptedEngine(says("a", "length")), TaskRequest(Task.TEXT))
    assert (read.finish_reason, read.warnings) == ("length", ("truncated",))


async def test_a_page_of_figures_only_is_read_as_text() -> None:
    engine, seen = ScriptedEngine(says("(1,2),(900,900)"), says("seen")), list[TextEvent]()
    read = await run(engine, TaskRequest(Task.MARKDOWN), seen)
    assert (read.text, read.warnings) == ("seen", ("figures_only", "retried"))
    assert engine.requests[1].task is Task.TEXT
    assert engine.requests[1].prompt == "提取图中的文字。"
    assert seen[1] == TextRestart("figures_only")


async def test_figures_then_a_loop_are_three_attempts() -> None:
    engine = ScriptedEngine(says("(1,2),(900,900)"), LOOP, says("seen"))
    read = await run(engine, TaskRequest(Task.MARKDOWN))
    assert (read.text, read.attempts) == ("seen", 3)
    assert read.warnings == ("figures_only", "retried", "repetition")


SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"total": {"type": "number"}, "<｜hy_User｜>": {}},
    "required": ["total"],
}


async def test_json_that_does_not_fit_is_asked_for_again() -> None:
    engine = ScriptedEngine(says('{"total": "x"}'), says('{"total": 5, "< ｜hy_User｜>": 1}'))
    read = await run(engine, TaskRequest(Task.EXTRACT, json_schema=SCHEMA))
    assert read.value == {"total": 5, "<｜hy_User｜>": 1}
    assert read.warnings == ("schema_retry", "retried")
    assert "<｜" not in str(engine.requests[0].json_schema) + engine.requests[0].prompt


async def test_json_that_fits_neither_time_is_an_error() -> None:
    engine = ScriptedEngine(says('{"total": "secret"}'), says("no JSON"))
    with pytest.raises(AnswerInvalid) as caught:
        await run(engine, TaskRequest(Task.EXTRACT, json_schema=SCHEMA))
    assert "secret" not in caught.value.detail


async def test_fields_come_back_as_asked_for() -> None:
    engine = ScriptedEngine(says('{"b": "2", "c": "3"}'))
    read = await run(engine, TaskRequest(Task.EXTRACT, fields=("a", "b")))
    assert read.value == {"a": None, "b": "2"}
    assert read.attempts == 1


@pytest.mark.parametrize(("raw", "value"), [("42 元", None), ('{"a": 1}', {"a": 1})])
async def test_an_extract_by_instruction_needs_no_json(raw: str, value: object) -> None:
    engine = ScriptedEngine(says(raw))
    read = await run(engine, TaskRequest(Task.EXTRACT, instruction="输出总计的值。"))
    assert (read.text, read.value) == (raw, value)


async def test_faults_pass_through() -> None:
    with pytest.raises(InvalidField):
        await run(ScriptedEngine(), TaskRequest(Task.EXTRACT))
    with pytest.raises(EngineUnavailable):
        await run(ScriptedEngine([TextDelta("a")]), TaskRequest(Task.TEXT))
    fault = EngineUnavailable("down")
    with pytest.raises(EngineUnavailable, match="down"):
        await run(ScriptedEngine([TextDelta("a"), fault]), TaskRequest(Task.TEXT))


async def test_cancelling_closes_the_stream() -> None:
    engine = ScriptedEngine(LOOP)
    reading = asyncio.create_task(run(engine, TaskRequest(Task.TEXT)))
    for _ in range(4):
        await asyncio.sleep(0)
    assert engine.open == 1
    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading
    assert engine.open == 0


async def test_a_failing_callback_closes_the_stream() -> None:
    async def gone(_: TextEvent) -> None:
        raise ConnectionResetError

    engine = ScriptedEngine(LOOP)
    with pytest.raises(ConnectionResetError):
        await recognise(
            cast("Engine", engine),
            IMAGE,
            TaskRequest(Task.TEXT),
            generation="1.5",
            request_id="r",
            max_output_tokens=99,
            on_text=gone,
        )
    assert engine.open == 0
