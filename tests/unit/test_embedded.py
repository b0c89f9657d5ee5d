"""The embedded engine as its users meet it: real models in real worker processes."""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import pytest_asyncio
from PIL import Image, ImageDraw

from hunyuan_ocr.documents.document import PreparedImage
from hunyuan_ocr.documents.geometry import bounds
from hunyuan_ocr.engines.base import EngineRequest, Finished, Line, TextDelta
from hunyuan_ocr.engines.embedded import EmbeddedEngine
from hunyuan_ocr.errors import (
    DeadlineExceeded,
    EngineRejected,
    EngineStarting,
    EngineUnavailable,
    PageFailed,
)
from hunyuan_ocr.tasks.catalogue import Task
from tests.paper import font

pytestmark = pytest.mark.asyncio(loop_scope="module")


def draw(lines: list[tuple[str, tuple[int, int], str]], size: tuple[int, int]) -> Image.Image:
    """White paper with (text, upper left corner, font name) written on it."""
    image = Image.new("RGB", size, "white")
    for text, corner, name in lines:
        ImageDraw.Draw(image).text(corner, text, fill="black", font=font(name, 24))
    return image


def request(image: Image.Image, task: Task = Task.TEXT) -> EngineRequest:
    data = io.BytesIO()
    image.save(data, "BMP")
    prepared = PreparedImage(data.getvalue(), "image/bmp", *image.size)
    return EngineRequest(prepared, task, "", 0, request_id="test")


async def read(engine: EmbeddedEngine, what: EngineRequest) -> tuple[str, tuple[Line, ...]]:
    *deltas, end = [event async for event in engine.stream(what)]
    assert isinstance(end, Finished)
    assert end.reason == "stop"
    assert end.lines is not None
    text = "".join(event.text for event in deltas if isinstance(event, TextDelta))
    return text, end.lines


async def read_text(engine: EmbeddedEngine, image: Image.Image) -> str:
    return (await read(engine, request(image)))[0]


def small(text: str) -> Image.Image:
    return draw([(text, (20, 20), "TestSans")], (320, 72))


def long_page(lines_count: int = 32) -> Image.Image:
    """A page that takes seconds: about 0.1 a line."""
    rng = random.Random(1)
    lines = [
        (" ".join(str(rng.randrange(10**8)) for _ in range(9)), (20, y), "TestMono")
        for y in range(20, 20 + 36 * lines_count, 36)
    ]
    return draw(lines, (1300, 40 + 36 * lines_count))


def workers() -> set[int]:
    """Process ids of all workers alive."""
    return {child.pid for child in multiprocessing.active_children() if child.pid is not None}


@asynccontextmanager
async def running(**options: float) -> AsyncIterator[EmbeddedEngine]:
    engine = EmbeddedEngine(**options)  # type: ignore[arg-type]
    try:
        await engine.start()
        yield engine
    finally:
        await engine.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[EmbeddedEngine]:
    async with running(workers=2) as engine:
        yield engine


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("TestHeiA", ["今天早上下了一场小雨，空气清新。", "价税合计（大写）：柒万陆仟元整"]),
        ("TestSans", ["14921341287 2030-10-27", "1.70 04:31:15 12834917108"]),
        ("TestSerif", ["The quick brown fox jumps over", "a lazy dog; twice, in May 2024."]),
    ],
)
async def test_text_and_boxes_are_right(
    engine: EmbeddedEngine, name: str, lines: list[str]
) -> None:
    corners = [(50, 40), (90, 240)]
    image = draw([(t, c, name) for t, c in zip(lines, corners, strict=True)], (800, 400))
    text, found = await read(engine, request(image))
    assert text == "\n".join(lines)
    pen = ImageDraw.Draw(image)
    for line, expected, corner in zip(found, lines, corners, strict=True):
        drawn = pen.textbbox(corner, expected, font=font(name, 24))
        for got, want, side in zip(bounds(line.polygon), drawn, image.size * 2, strict=True):
            assert abs(got - want) <= 0.02 * side


async def test_boxes_of_a_tall_page_are_in_its_own_pixels(engine: EmbeddedEngine) -> None:
    rows = {f"Entry number {y}": y for y in range(200, 4000, 900)}
    image = draw([(text, (60, y), "TestSans") for text, y in rows.items()], (720, 4000))
    _, found = await read(engine, request(image))
    assert [line.text for line in found] == list(rows)
    for line, y in zip(found, rows.values(), strict=True):
        assert abs(bounds(line.polygon)[1] - y) <= 20


@pytest.mark.parametrize("word", ["7", "OK", "发票", "Yes"])
async def test_a_lone_word_on_a_large_page_is_read_where_it_stands(
    engine: EmbeddedEngine, word: str
) -> None:
    """The detector, shown the whole page, finds none of these."""
    corner = (410, 817)
    image = draw([(word, corner, "TestHeiA")], (900, 1200))
    text, (line,) = await read(engine, request(image))
    assert text == word
    drawn = ImageDraw.Draw(image).textbbox(corner, word, font=font("TestHeiA", 24))
    assert bounds(line.polygon) == pytest.approx(drawn, abs=8)


async def test_a_faint_line_in_a_corner_of_a_large_sheet_is_read(engine: EmbeddedEngine) -> None:
    image = Image.new("L", (1680, 2376), 255)
    ImageDraw.Draw(image).text((1200, 2200), "set in small print", 215, font("TestSans", 14))
    assert await read_text(engine, image.convert("RGB")) == "set in small print"


@pytest.mark.parametrize(
    "mark",
    [
        lambda pen: pen.ellipse((450, 600, 455, 605), fill="black"),
        lambda pen: pen.line((50, 600, 850, 600), fill="black"),
    ],
    ids=["dot", "rule"],
)
async def test_a_lone_mark_is_no_text(
    engine: EmbeddedEngine, mark: Callable[[ImageDraw.ImageDraw], None]
) -> None:
    image = Image.new("RGB", (900, 1200), "white")
    mark(ImageDraw.Draw(image))
    assert await read(engine, request(image)) == ("", ())


async def test_columns_of_chinese_are_read_from_right_to_left(engine: EmbeddedEngine) -> None:
    columns = ["今天早上下了一场小雨", "空气比昨天清新多了", "请在本周五以前交到"]
    glyphs = [
        (glyph, (260 - 60 * at, 40 + 26 * row), "TestHeiA")
        for at, column in enumerate(columns)
        for row, glyph in enumerate(column)
    ]
    text, found = await read(engine, request(draw(glyphs, (400, 360))))
    assert text.split("\n") == columns
    for at, line in enumerate(found):
        left, top, right, bottom = bounds(line.polygon)
        assert (left, right) == pytest.approx((260 - 60 * at, 284 - 60 * at), abs=8)
        assert (top, bottom) == pytest.approx((42, 40 + 26 * len(columns[at])), abs=10)


async def test_a_row_is_one_line_of_text_but_one_box_a_cell_when_spotting(
    engine: EmbeddedEngine,
) -> None:
    cells = [("Apples", (20, 20), "TestSans"), ("12.50", (400, 20), "TestSans")]
    image = draw(cells, (600, 80))
    assert await read_text(engine, image) == "Apples 12.50"
    _, spotted = await read(engine, request(image, Task.SPOTTING))
    assert [line.text for line in spotted] == ["Apples", "12.50"]


async def test_lines_are_paragraphs_in_markdown(engine: EmbeddedEngine) -> None:
    lines = [("First line", (20, 20), "TestSans"), ("Second line", (20, 80), "TestSans")]
    text, _ = await read(engine, request(draw(lines, (300, 140)), Task.MARKDOWN))
    assert text == "First line\n\nSecond line"


async def test_a_blank_page_has_no_text(engine: EmbeddedEngine) -> None:
    assert await read(engine, request(Image.new("RGB", (32, 32), "white"))) == ("", ())


async def test_each_of_many_pages_gets_its_own_text(engine: EmbeddedEngine) -> None:
    texts = [f"Page {n} holds {n * 7919}" for n in range(10, 26)]
    read_back = await asyncio.gather(*(read_text(engine, small(text)) for text in texts))
    assert read_back == texts


async def test_bytes_that_are_no_image_are_refused(engine: EmbeddedEngine) -> None:
    broken = EngineRequest(PreparedImage(b"BM?", "image/bmp", 9, 9), Task.TEXT, "", 0, "test")
    with pytest.raises(EngineRejected):
        await read(engine, broken)


async def test_a_killed_worker_fails_only_its_page(engine: EmbeddedEngine) -> None:
    pages = [asyncio.create_task(read_text(engine, long_page(16))) for _ in range(2)]
    await asyncio.sleep(0.5)
    os.kill(min(workers()), signal.SIGKILL)
    results = await asyncio.gather(*pages, return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["WorkerDied", "str"]
    assert isinstance(next(r for r in results if not isinstance(r, str)), PageFailed)
    assert await read_text(engine, small("Next page")) == "Next page"


async def test_a_worker_killed_while_idle_is_not_noticed(engine: EmbeddedEngine) -> None:
    for pid in workers():
        os.kill(pid, signal.SIGKILL)
    assert await read_text(engine, small("Still here")) == "Still here"
    assert engine.refusal() is None


async def test_a_page_past_its_time_is_given_up() -> None:
    async with running(page_timeout_s=1.5) as engine:
        before = workers()
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            await read_text(engine, long_page())
        assert time.monotonic() - started < 5
        assert await read_text(engine, small("Next")) == "Next"
        assert workers() != before

        # A reader who goes away takes the work along.
        before = workers()
        page = asyncio.create_task(read_text(engine, long_page()))
        await asyncio.sleep(0.5)
        page.cancel()
        with pytest.raises(asyncio.CancelledError):
            await page
        assert await read_text(engine, small("Again")) == "Again"
        assert workers() != before


async def test_closing_ends_pages_and_processes() -> None:
    engine = EmbeddedEngine()
    assert isinstance(engine.refusal(), EngineStarting)
    with pytest.raises(EngineStarting):
        await read_text(engine, small("early"))
    before = workers()
    await engine.start()
    assert engine.refusal() is None
    pages = [asyncio.create_task(read_text(engine, long_page())) for _ in range(3)]
    await asyncio.sleep(0.5)
    await engine.close()
    results = await asyncio.gather(*pages, return_exceptions=True)
    assert [type(result) for result in results] == [EngineUnavailable] * 3
    assert workers() <= before
    assert isinstance(engine.refusal(), EngineUnavailable)
    with pytest.raises(EngineUnavailable):
        await read_text(engine, small("late"))


_PARENT = """
import asyncio, multiprocessing
from hunyuan_ocr.engines.embedded import EmbeddedEngine

async def main():
    await EmbeddedEngine().start()
    print(multiprocessing.active_children()[0].pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@contextmanager
def other_process(code: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_workers_end_with_their_parent() -> None:
    with other_process(_PARENT) as parent:
        assert parent.stdout is not None
        worker = int(await asyncio.to_thread(parent.stdout.readline))
        os.kill(worker, signal.SIGINT)  # Ctrl-C reaches the whole group, but is not for workers
        await asyncio.sleep(0.2)
        assert is_alive(worker)
    for _ in range(100):
        if not is_alive(worker):
            break
        await asyncio.sleep(0.05)
    assert not is_alive(worker)
