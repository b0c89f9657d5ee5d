"""Workers: a crash or a hang fails one page, errors arrive intact, no process stays behind."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hunyuan_ocr.documents.document import (
    Document,
    DocumentInfo,
    DocumentKind,
    ImageEncoding,
    PageSize,
    PrepareOptions,
)
from hunyuan_ocr.documents.header import Limits
from hunyuan_ocr.documents.prepare import Preparer, spooled
from hunyuan_ocr.errors import (
    DeadlineExceeded,
    DocumentError,
    ImageCorrupt,
    InvalidField,
    OcrError,
    PageFailed,
    PdfEncrypted,
    QueueFull,
    Unavailable,
    error_classes,
)
from hunyuan_ocr.workers import WorkerPool
from tests import files

OPTIONS = PrepareOptions(max_pixels=100_000, min_pixels=1, encoding=ImageEncoding.PNG)
LIMITS = Limits(max_megapixels=100, max_pages=50)
GIB = 1 << 30


@asynccontextmanager
async def pool_of(workers: int, **options: Any) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(workers=workers, **options)
    pool.start()
    try:
        yield pool
    finally:
        await pool.close()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # dead, and its new parent has not looked yet


async def until_gone(pid: int, within_s: float = 1.0) -> None:
    async with asyncio.timeout(within_s):
        while is_running(pid):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("error_class", list(error_classes()))
def test_errors_pickle_with_all_their_fields(error_class: type[OcrError]) -> None:
    before = error_class("what was wrong")
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is error_class
    assert vars(after) == vars(before)
    assert str(after) == "what was wrong"


def test_keyword_fields_pickle_too() -> None:
    queue_full = pickle.loads(pickle.dumps(QueueFull("full", retry_after_s=7.0)))
    assert (queue_full.detail, queue_full.retry_after_s) == ("full", 7.0)
    invalid = pickle.loads(pickle.dumps(InvalidField("bad", errors=[{"field": "x"}])))
    assert (invalid.detail, invalid.errors) == ("bad", [{"field": "x"}])


async def test_a_crash_fails_one_task_and_the_next_works() -> None:
    async with pool_of(1) as pool:
        with pytest.raises(PageFailed):
            await pool.run(os.abort, timeout_s=10)
        assert await pool.run(abs, -1, timeout_s=10) == 1


async def test_a_crash_leaves_the_neighbour_alone() -> None:
    async with pool_of(2) as pool:
        neighbour = asyncio.create_task(pool.run(time.sleep, 0.7, timeout_s=10))
        with pytest.raises(PageFailed):
            await pool.run(os.abort, timeout_s=10)
        await neighbour


async def test_an_idle_worker_that_was_killed_is_replaced() -> None:
    async with pool_of(1) as pool:
        os.kill(await pool.run(os.getpid, timeout_s=10), signal.SIGKILL)
        await asyncio.sleep(0.3)
        assert await pool.run(abs, -1, timeout_s=10) == 1


async def test_a_hang_is_killed_on_time() -> None:
    async with pool_of(1) as pool:
        pid = await pool.run(os.getpid, timeout_s=10)
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            await pool.run(time.sleep, 60, timeout_s=0.2)
        assert time.monotonic() - started < 5
        await until_gone(pid)
        assert await pool.run(abs, -1, timeout_s=10) == 1


async def test_cancelling_kills_the_work() -> None:
    async with pool_of(1) as pool:
        pid = await pool.run(os.getpid, timeout_s=10)
        task = asyncio.create_task(pool.run(time.sleep, 60, timeout_s=60))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_gone(pid)
        assert await pool.run(abs, -1, timeout_s=10) == 1


async def test_cancelling_one_who_waits_keeps_the_worker() -> None:
    async with pool_of(1) as pool:
        pid = await pool.run(os.getpid, timeout_s=10)
        busy = asyncio.create_task(pool.run(time.sleep, 0.3, timeout_s=10))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(pool.run(time.sleep, 60, timeout_s=60))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await busy
        assert await pool.run(os.getpid, timeout_s=10) == pid


async def test_memory_is_bounded() -> None:
    async with pool_of(1, max_memory_bytes=GIB) as pool:
        with pytest.raises(PageFailed):
            await pool.run(bytes, 2 * GIB, timeout_s=10)
        assert await pool.run(abs, -1, timeout_s=10) == 1


async def test_foreign_errors_arrive_without_what_they_quote() -> None:
    async with pool_of(1) as pool:
        with pytest.raises(PageFailed) as caught:
            await pool.run(int, "secret text of a page", timeout_s=10)
    assert "secret" not in repr(caught.value) + "".join(caught.value.__notes__)


async def test_workers_are_recycled() -> None:
    async with pool_of(1, max_tasks_per_worker=2) as pool:
        pids = [await pool.run(os.getpid, timeout_s=10) for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


async def test_closing_fails_what_runs_and_waits_and_leaves_no_process() -> None:
    async with pool_of(2) as pool:
        pids = await asyncio.gather(*(pool.run(_pid_after, 0.1, timeout_s=10) for _ in range(2)))
        tasks = [asyncio.create_task(pool.run(time.sleep, 60, timeout_s=60)) for _ in range(5)]
        await asyncio.sleep(0.2)
        await pool.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [Unavailable] * 5
        assert len(set(pids)) == 2
        for pid in pids:
            await until_gone(pid)
        with pytest.raises(Unavailable):
            await pool.run(abs, -1, timeout_s=1)


def _pid_after(delay_s: float) -> int:
    time.sleep(delay_s)
    return os.getpid()


async def test_workers_give_way_and_ignore_ctrl_c() -> None:
    async with pool_of(1, nice=7) as pool:
        pid = await pool.run(os.getpid, timeout_s=10)
        assert await pool.run(os.nice, 0, timeout_s=10) == os.nice(0) + 7
        os.kill(pid, signal.SIGINT)
        assert await pool.run(os.getpid, timeout_s=10) == pid


async def test_workers_die_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import asyncio, os\n"
        "from hunyuan_ocr.workers import WorkerPool\n"
        "async def main():\n"
        "    pool = WorkerPool(workers=1)\n"
        "    pool.start()\n"
        "    print(await pool.run(os.getpid, timeout_s=10), flush=True)\n"
        "    os.abort()\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    output, _ = await parent.communicate()
    await until_gone(int(output))


@asynccontextmanager
async def preparer_of(workers: int, **options: Any) -> AsyncIterator[Preparer]:
    preparer = Preparer(workers=workers, **options)
    preparer.start()
    try:
        yield preparer
    finally:
        await preparer.close()


async def test_eight_pdf_pages_at_once_are_each_the_right_page(tmp_path: Path) -> None:
    sent = Document(DocumentKind.PDF, files.pdf_pages(8))
    async with spooled(sent, tmp_path) as document, preparer_of(2) as preparer:
        info = await preparer.inspect(document, LIMITS, "caller")
        assert info.pages == (PageSize(400, 200),) * 8
        pages = await asyncio.gather(
            *(preparer.prepare(document, index, OPTIONS) for index in range(8))
        )
    for index, page in enumerate(pages):
        with Image.open(BytesIO(page.tiles[0].image.data)) as image:
            assert image.getpixel((200, 100)) == files.page_colour(index)


@asynccontextmanager
async def inspections_of(
    preparer: Preparer, data: bytes, callers: Sequence[str], folder: Path
) -> AsyncIterator[list[asyncio.Task[DocumentInfo]]]:
    """The same PDF from each of `callers`, all of them waiting to be opened."""
    limits = replace(LIMITS, max_pages=10_000)
    async with spooled(Document(DocumentKind.PDF, data), folder) as document:
        tasks = [
            asyncio.create_task(preparer.inspect(document, limits, caller)) for caller in callers
        ]
        await asyncio.sleep(0.01)
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_who_sends_many_long_pdfs_keeps_nobody_elses_from_being_opened(
    tmp_path: Path,
) -> None:
    long, short = files.pdf_of_empty_pages(9_999), files.pdf_of_empty_pages(1)
    async with (
        preparer_of(2) as preparer,
        spooled(Document(DocumentKind.PDF, short), tmp_path) as small,
    ):
        await preparer.inspect(small, LIMITS, "modest")  # warm
        async with inspections_of(preparer, long, ["greedy"] * 10, tmp_path) as greedy:
            began = time.monotonic()
            info = await preparer.inspect(small, LIMITS, "modest")
            assert time.monotonic() - began < 2
            assert len(info.pages) == 1
            assert sum(task.done() for task in greedy) <= 1


async def test_pages_whose_turn_it_is_do_not_wait_for_pdfs_to_be_opened(tmp_path: Path) -> None:
    long, called = files.pdf_of_empty_pages(9_999), files.pdf_pages(1)
    callers = [f"caller {number}" for number in range(10)]
    async with (
        preparer_of(1) as preparer,
        spooled(Document(DocumentKind.PDF, called), tmp_path) as document,
    ):
        await preparer.prepare(document, 0, OPTIONS)  # warm
        async with inspections_of(preparer, long, callers, tmp_path) as others:
            async with preparer.turn(document):
                page = await preparer.prepare(document, 0, OPTIONS)
            assert page.source == PageSize(400, 200)
            assert sum(task.done() for task in others) <= 2


async def test_refusals_cross_the_process_boundary() -> None:
    picture = files.encoded(files.quadrants(), "JPEG")
    async with preparer_of(1) as preparer:
        info = await preparer.inspect(Document(DocumentKind.JPEG, picture), LIMITS, "caller")
        assert info.pages == (PageSize(64, 48),)
        with pytest.raises(ImageCorrupt):
            await preparer.prepare(Document(DocumentKind.JPEG, files.cut(picture)), 0, OPTIONS)
        locked = Document(DocumentKind.PDF, files.pdf_encrypted("x"))
        with pytest.raises(PdfEncrypted):
            await preparer.inspect(locked, LIMITS, "caller")


async def test_a_file_whose_decoder_crashes_is_at_fault_and_costs_no_other() -> None:
    """A name that is no text: the decoder of this release of pi-heif reads from nowhere."""
    spoilt = Document(DocumentKind.HEIC, files.heic("orientation-6").replace(b"Exif", b"E\xeaif"))
    sound = Document(DocumentKind.HEIC, files.heic())
    async with preparer_of(1) as preparer:
        with pytest.raises(DocumentError):
            await preparer.inspect(spoilt, LIMITS, "caller")
        assert (await preparer.inspect(sound, LIMITS, "caller")).pages == (PageSize(96, 64),)


async def test_the_event_loop_stays_awake_while_large_pages_are_decoded() -> None:
    """Its timers come less than 20 ms late, or as late as other work on the machine makes them."""
    noise = Image.effect_noise((1000, 800), 40).convert("RGB").resize((8000, 6250))
    document = Document(DocumentKind.JPEG, files.encoded(noise, "JPEG"))
    async with preparer_of(2) as preparer:
        await preparer.prepare(document, 0, OPTIONS)  # warm
        for _ in range(5):
            idle_s = await _late_by_s(asyncio.create_task(asyncio.sleep(1)))
            pages = [preparer.prepare(document, 0, OPTIONS) for _ in range(4)]
            busy_s = await _late_by_s(asyncio.gather(*pages))
            if busy_s < max(0.02, 2 * idle_s):
                return
    raise AssertionError(f"late by {busy_s:.3f} s, without decoding by {idle_s:.3f} s")


async def _late_by_s(work: asyncio.Future[Any]) -> float:
    """What 99 of 100 timers of 5 ms that ran beside `work` came late by at most."""
    late_s = []
    while not work.done():
        started = time.perf_counter()
        await asyncio.sleep(0.005)
        late_s.append(time.perf_counter() - started - 0.005)
    await work
    return sorted(late_s)[int(0.99 * len(late_s))]


async def test_a_page_beyond_the_memory_limit_fails_alone() -> None:
    large = Document(DocumentKind.PNG, files.encoded(Image.new("RGB", (9000, 9000)), "PNG"))
    small = Document(DocumentKind.PNG, files.encoded(files.quadrants(), "PNG"))
    async with preparer_of(1, max_memory_bytes=3 * GIB // 4) as preparer:
        with pytest.raises(PageFailed):
            await preparer.prepare(large, 0, OPTIONS)
        assert (await preparer.prepare(small, 0, OPTIONS)).source == PageSize(64, 48)
