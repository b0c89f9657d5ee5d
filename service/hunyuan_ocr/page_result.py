"""What the answer says about a page: what was read, how it was shown, and what to beware of."""

from __future__ import annotations

from hunyuan_ocr.documents.document import PreparedPage, PrepareOptions
from hunyuan_ocr.documents.layout import lowered
from hunyuan_ocr.reading import PageLine, PageResult
from hunyuan_ocr.recognise import Recognition

# Warnings of pages that are read less well than usual, not only later.
_WORSE = frozenset({"cpu_engine", "resolution_lowered"})
# A page shown to the model below half its size may lose small print: callers are told.
_DOWNSCALED_BELOW = 0.5


def degradations(
    page: PreparedPage, options: PrepareOptions, *, stands_in: bool, slowed: bool
) -> tuple[str, ...]:
    """What was done to a page to get through load or trouble, by the names of its warnings.

    `options` are those it was prepared with. `stands_in`: another engine usually reads it;
    `slowed`: its class has fewer slots than usual.
    """
    told = {
        "cpu_engine": stands_in,
        "resolution_lowered": not page.blank and lowered(page, options),
        "batch_slowed": slowed,
    }
    return tuple(name for name, holds in told.items() if holds)


def page_result(
    index: int, engine: str, page: PreparedPage, read: Recognition, degraded: tuple[str, ...]
) -> PageResult:
    """The result of a page that was read, or is `blank`; `degraded` as `degradations` says."""
    placement = page.tiles[0].placement
    scale = min(placement.scale_x, placement.scale_y)
    shrunk = ("downscaled",) if scale < _DOWNSCALED_BELOW and not page.blank else ()
    return PageResult(
        index=index,
        status="ok",
        engine=engine,
        text=read.text,
        lines=tuple(PageLine(line.text, line.polygon, line.label) for line in read.lines),
        value=read.value,
        width=page.source.width,
        height=page.source.height,
        scale=round(scale, 4),
        rotation_applied=page.rotation_applied,
        blank=page.blank,
        degraded=not _WORSE.isdisjoint(degraded),
        finish_reason="blank" if page.blank else read.finish_reason,
        warnings=(*read.warnings, *page.warnings, *shrunk, *degraded),
        usage=read.usage,
    )
