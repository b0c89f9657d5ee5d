"""From a document's page to the image an engine reads, in worker processes."""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple
from weakref import WeakValueDictionary

import pi_heif
from PIL import Image

from hunyuan_ocr.documents import bundled, colour, decode, header, layout, pdf, tiff
from hunyuan_ocr.documents.document import (
    Document,
    DocumentInfo,
    DocumentKind,
    PageSize,
    PageWarning,
    PreparedImage,
    PreparedPage,
    PrepareOptions,
)
from hunyuan_ocr.documents.frame import Frame
from hunyuan_ocr.documents.header import Limits
from hunyuan_ocr.errors import DocumentError, PageOutOfRange, Unavailable, WorkerDied
from hunyuan_ocr.workers import WorkerPool

_log = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_SEVERAL_PAGES: Final = frozenset((DocumentKind.PDF, DocumentKind.TIFF))
# Formats whose headers need a library, and so a process that may crash.
_BY_LIBRARY: Final = frozenset((DocumentKind.AVIF, DocumentKind.HEIC, DocumentKind.JP2))
READ_IN_WORKER: Final = _BY_LIBRARY | {DocumentKind.PDF}
# The caller chose a page from a count that was within its own limit; this bounds the search.
_PAGES_MAX: Final = 100_000


def prepare(document: Document, index: int, options: PrepareOptions) -> PreparedPage:
    """Page `index` (0-based) of a document, ready for an engine.

    A picture that needs no change is decoded all the same, to prove it whole, and its bytes are
    forwarded. Blocking: runs in a worker.

    Raises `DocumentError` classes, `ImageTooLarge`, `UnsupportedFormat`, `MemoryError`.
    """
    if document.kind is DocumentKind.PDF:
        return _prepare_pdf(document, index, options)
    frame = _frame(document, index)
    _check_size(frame.upright, options)
    content = layout.content_size(frame.upright, options)
    with decode.open_picture(document.kind, document.path or document.data) as image:
        warnings: tuple[PageWarning, ...] = ()
        if decode.has_more_frames(image):
            warnings = ("first_frame_only",)
        untouched = None
        if _is_plain(document, frame, options) and colour.is_srgb(image):
            untouched = PreparedImage(
                _data(document), document.kind.value, frame.width, frame.height
            )
        decode.load(image, frame, wanted=content)
        upright = decode.to_upright_rgb(image, frame, wanted=content)
    page = layout.lay_out(upright, frame.upright, options, untouched)
    return replace(page, warnings=warnings)


def inspect(document: Document, limits: Limits) -> DocumentInfo:
    """What the headers say of a format that needs a library. Blocking: runs in a worker."""
    if document.kind is DocumentKind.PDF:
        return pdf.read_header(document, limits)
    return header.checked((_opened_frame(document).upright,), limits)


class Preparer:
    """Prepares pages in a bounded pool of worker processes; used by one event loop.

    Each worker holds at most `max_memory_bytes`, is replaced after `max_pages_per_worker` pages,
    and is killed when a page takes longer than `page_timeout_s` or its caller goes away. One more
    opens PDFs, to tell their pages.
    """

    def __init__(
        self,
        *,
        workers: int,
        max_pages_per_worker: int = 200,
        page_timeout_s: float = 30.0,
        max_memory_bytes: int | None = 2 << 30,
        nice: int = 5,
    ) -> None:
        self._page_timeout_s = page_timeout_s
        # A small PDF can take its whole time to render: pictures must not wait behind such ones.
        self._pdfs = asyncio.Semaphore(max(1, workers - 1))
        self._pool = WorkerPool(
            workers=workers,
            max_tasks_per_worker=max_pages_per_worker,
            nice=nice,
            max_memory_bytes=max_memory_bytes,
            setup=set_up_worker,
        )
        # Nobody was admitted yet whose PDF is opened here: it holds up no page that was.
        self._pdf_headers = WorkerPool(
            workers=1,
            max_tasks_per_worker=max_pages_per_worker,
            nice=nice,
            max_memory_bytes=max_memory_bytes,
        )
        self._inspecting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def start(self) -> None:
        """Start the workers; returns before they are warm."""
        self._pool.start()
        self._pdf_headers.start()

    async def close(self) -> None:
        """Kill the workers; pages in flight fail with `Unavailable`."""
        await self._pool.close()
        await self._pdf_headers.close()

    async def inspect(self, document: Document, limits: Limits, caller: str) -> DocumentInfo:
        """Page sizes from headers alone; of one caller's documents, one at a time in a worker.

        Errors as `header.read_header`, `PdfCorrupt`, `PdfEncrypted`, and those of `prepare`.
        """
        if document.kind not in READ_IN_WORKER:
            return header.read_header(document, limits)
        pool = self._pdf_headers if document.kind is DocumentKind.PDF else self._pool
        async with self._inspecting.setdefault(caller, asyncio.Lock()):
            return await self._run(pool, inspect, _by_path(document), limits)

    async def prepare(
        self, document: Document, index: int, options: PrepareOptions
    ) -> PreparedPage:
        """`prepare` in a worker, inside a `turn`; errors as there, and of `WorkerPool.run`, and
        `DocumentError` for one whose decoder crashes."""
        return await self._run(self._pool, prepare, _by_path(document), index, options)

    async def _run(self, pool: WorkerPool, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """In a worker; a document that kills two of them is at fault, not they."""
        try:
            return await pool.run(function, *args, timeout_s=self._page_timeout_s)
        except WorkerDied:
            pass
        try:
            return await pool.run(function, *args, timeout_s=self._page_timeout_s)
        except WorkerDied as error:
            raise DocumentError("Its decoder crashed, and did so again.") from error

    def turn(self, document: Document) -> AbstractAsyncContextManager[None]:
        """What to hold while a page of `document` is prepared, and before anything scarce."""
        return self._pdfs if document.kind is DocumentKind.PDF else nullcontext()


@asynccontextmanager
async def spooled(document: Document, directory: Path) -> AsyncIterator[Document]:
    """A document of several pages with a file of its bytes, which is removed at the end.

    So that a worker reads only the page it needs. Only this user can read the file. Formats of
    one page are yielded as they are. Raises Unavailable where the file cannot be written.
    """
    if document.kind not in _SEVERAL_PAGES:
        yield document
        return
    try:
        descriptor, name = tempfile.mkstemp(prefix="page-", dir=directory)  # mode 0600
    except OSError as error:
        raise _no_room(error) from error
    try:
        try:
            with os.fdopen(descriptor, "wb") as file:
                await asyncio.to_thread(file.write, document.data)
        except OSError as error:
            raise _no_room(error) from error
        yield replace(document, path=Path(name))
    finally:
        os.unlink(name)


def _no_room(error: OSError) -> Unavailable:
    _log.error("a document could not be spooled: %s", os.strerror(error.errno or 0))
    return Unavailable("there is no room to hold the document", retry_after_s=10.0)


def _by_path(document: Document) -> Document:
    """Bytes that stand in a file cross no pipe."""
    return document if document.path is None else replace(document, data=b"")


def set_up_worker() -> None:
    # Our own limits are checked before any decode; Pillow's guard would warn below them.
    Image.MAX_IMAGE_PIXELS = None
    pi_heif.options.DECODE_THREADS = 1
    if bundled.installed():
        import cv2

        cv2.setNumThreads(1)


def _prepare_pdf(document: Document, index: int, options: PrepareOptions) -> PreparedPage:
    with pdf.opened_page(document, index) as page:
        source = pdf.size(page, options.pdf_dpi)
        _check_size(source, options)
        rendered = pdf.render(page, layout.content_size(source, options))
    return layout.lay_out(rendered, source, options)


def _check_size(source: PageSize, options: PrepareOptions) -> None:
    Limits(options.max_source_megapixels, _PAGES_MAX).check_page(source)


def _frame(document: Document, index: int) -> Frame:
    frames = _frames(document)
    if not 0 <= index < len(frames):
        raise PageOutOfRange
    return frames[index]


def _frames(document: Document) -> tuple[Frame, ...]:
    limits = Limits(max_megapixels=0, max_pages=_PAGES_MAX)  # sizes are checked per page
    if document.kind in _BY_LIBRARY:
        return (_opened_frame(document),)
    if document.path is None:
        return header.read_frames(document.kind, document.data, limits)
    with (
        document.path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return header.read_frames(document.kind, data, limits)


def _opened_frame(document: Document) -> Frame:
    with decode.open_picture(document.kind, document.path or document.data) as image:
        orientation = tiff.exif_orientation(image.info.get("exif") or b"")
        return Frame(*image.size, orientation=orientation)


def _is_plain(document: Document, frame: Frame, options: PrepareOptions) -> bool:
    return document.kind in options.accepts and frame.plain and frame.orientation == 1


def _data(document: Document) -> bytes:
    return document.data if document.path is None else document.path.read_bytes()
