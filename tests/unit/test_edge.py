"""The small parts of the HTTP edge: negotiation, keys, disconnects, the error tree."""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers
from starlette.types import Message, Send

from hunyuan_ocr.api import live
from hunyuan_ocr.api.keys import KeyFileError, KeyRing, new_key
from hunyuan_ocr.api.live import ClientGone, unless_gone
from hunyuan_ocr.api.negotiate import choose
from hunyuan_ocr.concurrency import as_they_finish
from hunyuan_ocr.errors import NotAcceptable, Unauthorized, error_classes

OFFERED = ("application/json", "text/plain", "text/markdown")


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("text/plain", "text/plain"),
        ("text/*", "text/plain"),
        ("text/*;q=0.5, text/markdown", "text/markdown"),
        ("application/json;q=0.1, text/plain;q=0.2", "text/plain"),
        ("application/json;q=0, */*", "text/plain"),
        ("TEXT/Markdown ; Q=1", "text/markdown"),
        ("text/html, application/xhtml+xml, */*;q=0.8", "application/json"),
    ],
)
def test_negotiation(accept: str, chosen: str) -> None:
    assert choose(accept, OFFERED) == chosen


@given(st.text())
def test_negotiation_never_fails_otherwise(accept: str) -> None:
    with suppress(NotAcceptable):
        assert choose(accept, OFFERED) in OFFERED


def test_every_error_has_its_own_code_and_says_what_to_do() -> None:
    classes = list(error_classes())
    codes = [error.code for error in classes]
    assert len(codes) == len(set(codes))
    for error in classes:
        assert 400 <= error.status < 600
        assert error.title
        assert error.advice.endswith(".")


def key_headers(key: str) -> Headers:
    return Headers({"authorization": f"Bearer {key}"})


def test_key_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    first, first_entry = new_key("first")
    second, second_entry = new_key("second")
    path.write_text(first_entry)
    ring = KeyRing(path)
    assert ring.tenant(key_headers(first)) == "first"
    with pytest.raises(Unauthorized):
        ring.tenant(key_headers(second))
    # Kubernetes swaps a Secret by renaming.
    new = tmp_path / "new"
    new.write_text(second_entry)
    os.replace(new, path)
    assert ring.tenant(key_headers(second)) == "second"
    with pytest.raises(Unauthorized):
        ring.tenant(key_headers(first))
    path.write_text("broken")
    assert ring.tenant(key_headers(second)) == "second"
    path.unlink()
    assert ring.tenant(key_headers(second)) == "second"


def test_a_broken_key_file_is_an_error_at_start(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError):
        KeyRing(tmp_path / "absent")
    path = tmp_path / "keys"
    path.write_text("no colons here")
    with pytest.raises(KeyFileError, match="line 1"):
        KeyRing(path)


async def never_sent(message: Message) -> None:
    raise AssertionError


async def test_work_ends_when_the_client_leaves() -> None:
    cancelled = asyncio.Event()

    async def work(send: Send) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    async def receive() -> Message:
        await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    with pytest.raises(ClientGone):
        await unless_gone(receive, never_sent, work)
    assert cancelled.is_set()


async def test_work_that_ends_first_is_not_disturbed() -> None:
    async def receive() -> Message:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send_one(send: Send) -> None:
        await send({"type": "http.response.body"})

    async def fail(send: Send) -> None:
        raise KeyError

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await unless_gone(receive, send, send_one)
    assert len(sent) == 1
    with pytest.raises(KeyError):
        await unless_gone(receive, send, fail)


@pytest.mark.parametrize("slow", [True, False])
async def test_a_client_that_takes_nothing_is_gone_and_a_slow_one_is_not(
    monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    monkeypatch.setattr(live, "_STALLED_S", 0.4)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        await asyncio.sleep(0.2 if slow else 60)

    async def work(send: Send) -> None:
        for _ in range(5):
            await send({"type": "http.response.body"})
        await asyncio.sleep(0.6)  # nothing to send is no reason to be gone

    if slow:
        await unless_gone(receive, send, work)
    else:
        with pytest.raises(ClientGone):
            await unless_gone(receive, send, work)


async def test_jobs_are_bounded_and_cancelled_on_leaving() -> None:
    running = 0
    highest = 0
    ended = 0

    async def job(number: int) -> int:
        nonlocal running, highest, ended
        running += 1
        highest = max(highest, running)
        try:
            await asyncio.sleep(0.001 if number < 5 else 60)
        finally:
            running -= 1
            ended += 1
        return number

    jobs = (lambda number=number: job(number) for number in range(100))
    results = as_they_finish(jobs, 3)
    got = [await anext(results) for _ in range(5)]
    assert sorted(got) == list(range(5))
    await results.aclose()
    assert (running, highest) == (0, 3)
    assert ended <= 9


async def test_jobs_that_fail_together_leave_no_words_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def job() -> None:
        raise ValueError("a caller's words")

    results = as_they_finish([job, job, job], 3)
    with pytest.raises(ValueError, match="words"):
        await anext(results)
    del results
    gc.collect()
    await asyncio.sleep(0)
    assert not caplog.records
