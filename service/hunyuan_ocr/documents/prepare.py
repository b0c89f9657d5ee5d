"""From a document's page to the image an engine reads, in worker processes."""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Final

from PIL import Image

from hunyuan_ocr.documents import decode, header, pdf, tiff
from hunyuan_ocr.documents.document import (
    Document,
    DocumentInfo,
    DocumentKind,
    ImageEncoding,
    PageSize,
    PreparedImage,
    PreparedPage,
    PrepareOptions,
)
from hunyuan_ocr.documents.header import Frame, Limits
from hunyuan_ocr.documents.resize import Fit, draw, fit
from hunyuan_ocr.errors import PageOutOfRange, Unavailable
from hunyuan_ocr.workers import WorkerPool

_log = logging.getLogger(__name__)

# JPEG at this quality without subsampling keeps strokes of coloured text intact.
_SAVE_OPTIONS: Final[dict[ImageEncoding, dict[str, object]]] = {
    ImageEncoding.JPEG: {"quality": 92, "subsampling": 0},
    ImageEncoding.PNG: {"compress_level": 1},
    ImageEncoding.BMP: {},
}
_SEVERAL_PAGES: Final = frozenset((DocumentKind.PDF, DocumentKind.TIFF))
# Formats whose headers need a library, and so a process that may crash.
_READ_IN_WORKER: Final = frozenset((DocumentKind.PDF, DocumentKind.AVIF))
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
    target = fit(frame.upright, options.min_pixels, options.max_pixels)
    with decode.open_picture(document.kind, document.path or document.data) as image:
        if _fits_untouched(document, frame, target, options):
            decode.load(image, frame)
            prepared = PreparedImage(
                _data(document), document.kind.value, frame.width, frame.height
            )
        else:
            decode.load(image, frame, wanted=target.content)
            upright = decode.to_upright_rgb(image, frame)
            prepared = _encode(draw(upright, target), options.encoding)
    return PreparedPage(prepared, frame.upright, target.placement(frame.upright))


def inspect(document: Document, limits: Limits) -> DocumentInfo:
    """What the headers say of a format that needs a library. Blocking: runs in a worker."""
    if document.kind is DocumentKind.PDF:
        return pdf.read_header(document, limits)
    return header.checked((_avif_frame(document).upright,), limits)


class Preparer:
    """Prepares pages in a bounded pool of worker processes; used by one event loop.

    Each worker holds at most `max_memory_bytes`, is replaced after `max_pages_per_worker` pages,
    and is killed when a page takes longer than `page_timeout_s` or its caller goes away.
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
            setup=_set_up_worker,
        )

    def start(self) -> None:
        """Start the workers; returns before they are warm."""
        self._pool.start()

    async def close(self) -> None:
        """Kill the workers; pages in flight fail with `Unavailable`."""
        await self._pool.close()

    async def inspect(self, document: Document, limits: Limits) -> DocumentInfo:
        """Page sizes from headers alone; errors as `header.read_header`, `PdfCorrupt`,
        `PdfEncrypted`, and those of `WorkerPool.run`."""
        if document.kind not in _READ_IN_WORKER:
            return header.read_header(document, limits)
        async with self.turn(document):
            return await self._pool.run(
                inspect, _by_path(document), limits, timeout_s=self._page_timeout_s
            )

    async def prepare(
        self, document: Document, index: int, options: PrepareOptions
    ) -> PreparedPage:
        """`prepare` in a worker, inside a `turn`; errors as there, and of `WorkerPool.run`."""
        return await self._pool.run(
            prepare, _by_path(document), index, options, timeout_s=self._page_timeout_s
        )

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


def _set_up_worker() -> None:
    # Our own limits are checked before any decode; Pillow's guard would warn below them.
    Image.MAX_IMAGE_PIXELS = None


def _prepare_pdf(document: Document, index: int, options: PrepareOptions) -> PreparedPage:
    with pdf.opened_page(document, index) as page:
        source = pdf.size(page, options.pdf_dpi)
        _check_size(source, options)
        target = fit(source, options.min_pixels, options.max_pixels)
        rendered = pdf.render(page, target.content)
    return PreparedPage(
        _encode(draw(rendered, target), options.encoding), source, target.placement(source)
    )


def _check_size(source: PageSize, options: PrepareOptions) -> None:
    Limits(options.max_source_megapixels, _PAGES_MAX).check_page(source)


def _frame(document: Document, index: int) -> Frame:
    frames = _frames(document)
    if not 0 <= index < len(frames):
        raise PageOutOfRange
    return frames[index]


def _frames(document: Document) -> tuple[Frame, ...]:
    limits = Limits(max_megapixels=0, max_pages=_PAGES_MAX)  # sizes are checked per page
    if document.kind is DocumentKind.AVIF:
        return (_avif_frame(document),)
    if document.path is None:
        return header.read_frames(document.kind, document.data, limits)
    with (
        document.path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return header.read_frames(document.kind, data, limits)


def _avif_frame(document: Document) -> Frame:
    with decode.open_picture(document.kind, document.path or document.data) as image:
        orientation = tiff.exif_orientation(image.info.get("exif", b""))
        return Frame(*image.size, orientation=orientation)


def _fits_untouched(document: Document, frame: Frame, target: Fit, options: PrepareOptions) -> bool:
    return (
        document.kind in options.accepts
        and frame.plain
        and frame.orientation == 1
        and target.canvas == frame.upright
    )


def _data(document: Document) -> bytes:
    return document.data if document.path is None else document.path.read_bytes()


def _encode(image: Image.Image, encoding: ImageEncoding) -> PreparedImage:
    image.info.clear()  # a profile or orientation of the source would be wrong by now
    buffer = BytesIO()
    image.save(buffer, encoding.name, **_SAVE_OPTIONS[encoding])
    return PreparedImage(buffer.getvalue(), encoding.value, image.width, image.height)
