"""Reading files for the command line: here, or by a running service."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from bisect import insort
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import aiohttp
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hunyuan_ocr.api.problems import problem_body
from hunyuan_ocr.api.schemas import page_out
from hunyuan_ocr.app import Service
from hunyuan_ocr.engines.base import Engine
from hunyuan_ocr.errors import EngineStarting, OcrError
from hunyuan_ocr.reading import ReadRequest
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.tasks.prompts import TaskRequest
from hunyuan_ocr.telemetry.stages import StageRecorder
from hunyuan_ocr.traffic.classes import Priority

Page = dict[str, Any]
# A server's error may be any size when it is not ours.
_ERROR_BYTES_MAX = 100_000
_CUT_OFF = "pages are missing: the file is cut off, or time ran out"
_BROKEN_OFF = "pages are missing: the answer broke off"
_NOT_OURS = "that is no answer of this service: is the address right?"
# An engine that is just being started reads pages to itself first.
ENGINE_START_S = 60.0
_LOOK_S = 0.1
# A page of a large document may take long; the server's own deadline ends the request.
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10)


class ReadFailed(Exception):
    """A file could not be read; the message is for the person at the terminal."""


async def engine_problem(engine: Engine) -> str | None:
    """Why the engine takes no pages, once it has had time to start; None when it does."""
    deadline = time.monotonic() + ENGINE_START_S
    while True:
        refusal = engine.refusal()
        if not isinstance(refusal, EngineStarting) or time.monotonic() > deadline:
            return refusal.detail if refusal else None
        await asyncio.sleep(_LOOK_S)


class Reader(Protocol):
    """Where documents are read; both ways answer with the pages of /v1/ocr."""

    def running(self) -> Any:
        """An async context manager around all reading."""

    def read(self, data: bytes, task: Task) -> AsyncIterator[tuple[int, Page]]:
        """Yield (pages to expect, a page) as pages finish. Raises ReadFailed."""


class LocalReader:
    """Reads with a service's engine, in this process."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._service.running():
            if problem := await engine_problem(self._service.usual.engine):
                raise ReadFailed(problem)
            yield

    async def read(self, data: bytes, task: Task) -> AsyncIterator[tuple[int, Page]]:
        service = self._service
        request_id = secrets.token_hex(8)
        wanted = ReadRequest(
            data=data,
            task=TaskRequest(task=task),
            request_id=request_id,
            tenant="local",
            arrived_at=asyncio.get_running_loop().time(),
            # The only caller: nothing is to be kept free for others.
            priority=Priority.STANDARD,
            timeout_s=service.settings.batch_timeout_s,
        )
        stages = StageRecorder(
            service.metrics, service.traces.get_tracer("hunyuan_ocr"), time.monotonic
        )
        try:
            async with service.usual.pipeline.open(wanted, stages) as reading:
                async for page in reading.results:
                    problem = problem_body(page.error, request_id) if page.error else None
                    shown = page_out(page, problem).model_dump(mode="json")
                    yield len(reading.selected), shown
                if reading.cut_off:
                    raise ReadFailed(_CUT_OFF)
        except OcrError as error:
            raise ReadFailed(f"{error.detail} ({error.code})") from None


class ServerReader:
    """Reads by asking a running service for NDJSON."""

    def __init__(self, base_url: str, api_key: str | None) -> None:
        self._url = base_url.rstrip("/") + "/v1/ocr"
        self._headers = {
            "Accept": "application/x-ndjson",
            "Content-Type": "application/octet-stream",
        }
        if api_key:
            self._headers["X-API-Key"] = api_key
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(timeout=_NO_TIMEOUT) as self._session:
            yield

    async def read(self, data: bytes, task: Task) -> AsyncIterator[tuple[int, Page]]:
        assert self._session is not None, "read inside `running`"  # noqa: S101
        query = {"task": task.value, "priority": "batch"}
        try:
            async with self._session.post(
                self._url, data=data, params=query, headers=self._headers
            ) as response:
                if response.status != 200:
                    raise ReadFailed(await _problem_text(response))
                ended = False
                async for line in _lines(response):
                    page = json.loads(line)
                    if "index" in page:
                        yield page.pop("pages_expected"), page
                    elif page["truncated"]:
                        raise ReadFailed(_CUT_OFF)
                    else:
                        ended = True
                if not ended:  # behind some proxies a broken answer ends like a whole one
                    raise ReadFailed(_BROKEN_OFF)
        except aiohttp.ClientError as error:
            raise ReadFailed(f"{self._url}: {error}") from None
        except (ValueError, KeyError, TypeError):
            raise ReadFailed(f"{self._url}: {_NOT_OURS}") from None


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length: a page with many boxes exceeds the stream reader's own limit."""
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


async def _problem_text(response: aiohttp.ClientResponse) -> str:
    body = await response.content.read(_ERROR_BYTES_MAX)
    try:
        problem = json.loads(body)
        return f"{problem['detail']} ({problem['code']}, request {problem['request_id']})"
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {response.status}"


async def read_files(
    reader: Reader, files: Sequence[Path], task: Task, form: str, output: Path | None
) -> int:
    """Read `files` in turn, showing progress; returns how many files or pages failed.

    Raises ReadFailed where `output` cannot hold an answer for each.
    """
    if output is not None and len({file.name for file in files}) < len(files):
        raise ReadFailed("two files have the same name: their answers would overwrite each other")
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    failed = 0
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        async with reader.running():
            for file in files:
                pages: list[Page] = []
                try:
                    await _read_one(reader, file, task, pages, progress)
                except ReadFailed as error:
                    console.print(f"[red]{escape(str(file))}:[/] {escape(str(error))}")
                    failed += 1
                failed += _report(console, file, pages)
                if pages:
                    await asyncio.to_thread(_write, _rendered(pages, form), file, form, output)
    return failed


async def _read_one(
    reader: Reader, file: Path, task: Task, pages: list[Page], progress: Progress
) -> None:
    """Read a file's pages into `pages`, in order; what was read before an error stays there."""
    bar = progress.add_task(file.name, total=None)
    try:
        data = await asyncio.to_thread(file.read_bytes)
    except OSError as error:
        raise ReadFailed(str(error.strerror)) from None
    async for total, page in reader.read(data, task):
        insort(pages, page, key=lambda page: int(page["index"]))
        progress.update(bar, total=total, completed=len(pages))


def _report(console: Console, file: Path, pages: Sequence[Page]) -> int:
    """Say which pages could not be read; returns how many."""
    bad = [page for page in pages if page["status"] == "error"]
    for page in bad:
        detail = page["problem"]["detail"]
        place = f"{file}, page {page['index'] + 1}:"
        console.print(f"[red]{escape(place)}[/] {escape(detail)}")
    return len(bad)


def _rendered(pages: Sequence[Page], form: str) -> str:
    if form == "json":
        return json.dumps(pages, ensure_ascii=False, indent=2) + "\n"
    return "\n\n".join(page["text"] for page in pages if page["status"] == "ok") + "\n"


def _write(text: str, file: Path, form: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    suffix = ".json" if form == "json" else ".txt"
    try:
        output.mkdir(parents=True, exist_ok=True)
        (output / (file.name + suffix)).write_text(text, "utf-8")
    except OSError as error:
        raise ReadFailed(f"{output} cannot be written to: {error.strerror}") from None
