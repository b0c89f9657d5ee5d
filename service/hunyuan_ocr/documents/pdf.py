"""PDF pages as pictures, by pdfium; runs in worker processes, as hostile files may crash it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pypdfium2
from PIL import Image
from pypdfium2 import raw

from hunyuan_ocr.documents.document import Document, DocumentInfo, PageSize
from hunyuan_ocr.documents.header import Limits, checked
from hunyuan_ocr.errors import PageOutOfRange, PdfCorrupt, PdfEncrypted

_POINTS_PER_INCH = 72
_PASSWORD_ERRORS = (raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY)
_WHITE = (255, 255, 255, 255)


def read_header(document: Document, limits: Limits) -> DocumentInfo:
    """Sizes of all pages at `limits.pdf_dpi`, rotated and cropped as viewers show them.

    Raises `PdfCorrupt`, `PdfEncrypted`, `TooManyPages`, and `ImageTooLarge` as
    `header.read_header` does.
    """
    with _opened(document) as pdf:
        limits.check_count(len(pdf))
        pages = tuple(_page_size(pdf, index, limits.pdf_dpi) for index in range(len(pdf)))
    return checked(pages, limits)


def _page_size(pdf: pypdfium2.PdfDocument, index: int, dpi: int) -> PageSize:
    try:
        width_pt, height_pt = pdf.get_page_size(index)
    except pypdfium2.PdfiumError:
        # One broken page must not cost the others; rendering it will say what is wrong.
        return PageSize(1, 1)
    return _pixels(width_pt, height_pt, dpi)


def _pixels(width_pt: float, height_pt: float, dpi: int) -> PageSize:
    scale = dpi / _POINTS_PER_INCH
    return PageSize(max(1, round(width_pt * scale)), max(1, round(height_pt * scale)))


@contextmanager
def opened_page(document: Document, index: int) -> Iterator[pypdfium2.PdfPage]:
    """Open page `index` (0-based), with the document's form fields ready to be drawn.

    Raises `PdfCorrupt`, `PdfEncrypted`, `PageOutOfRange`.
    """
    with _opened(document) as pdf:
        if not 0 <= index < len(pdf):
            raise PageOutOfRange
        pdf.init_forms()
        page = pdf[index]
        try:
            yield page
        finally:
            page.close()


def size(page: pypdfium2.PdfPage, dpi: int) -> PageSize:
    """The upright size of a page at `dpi`, in pixels."""
    width_pt, height_pt = page.get_size()
    return _pixels(width_pt, height_pt, dpi)


def render(page: pypdfium2.PdfPage, size: PageSize) -> Image.Image:
    """Draw a page with its annotations and form fields as RGB of exactly `size`."""
    bitmap = pypdfium2.PdfBitmap.new_native(
        size.width, size.height, raw.FPDFBitmap_BGR, rev_byteorder=True
    )
    try:
        bitmap.fill_rect(_WHITE, 0, 0, size.width, size.height)
        area = (0, 0, size.width, size.height, 0, raw.FPDF_ANNOT | raw.FPDF_REVERSE_BYTE_ORDER)
        raw.FPDF_RenderPageBitmap(bitmap, page, *area)
        if page.formenv:
            raw.FPDF_FFLDraw(page.formenv, bitmap, page, *area)
        picture: Image.Image = bitmap.to_pil().copy()  # the bitmap's memory goes with it
        return picture
    finally:
        bitmap.close()


@contextmanager
def _opened(document: Document) -> Iterator[pypdfium2.PdfDocument]:
    try:
        pdf = pypdfium2.PdfDocument(document.path or document.data, password=document.password)
    except pypdfium2.PdfiumError as error:
        raise (PdfEncrypted if error.err_code in _PASSWORD_ERRORS else PdfCorrupt) from error
    try:
        if len(pdf) == 0:
            raise PdfCorrupt("The PDF has no pages.")
        yield pdf
    except pypdfium2.PdfiumError as error:
        raise PdfCorrupt("The page is broken beyond repair.") from error
    finally:
        pdf.close()
