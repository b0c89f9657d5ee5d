"""One picture as its header describes it."""

from __future__ import annotations

from dataclasses import dataclass

from hunyuan_ocr.documents.document import PageSize


@dataclass(frozen=True, slots=True)
class Frame:
    """`width` and `height` as stored, before `orientation` (EXIF, 1 to 8) is applied.

    `position` is what a decoder seeks to. `plain` says 8-bit grey or RGB without transparency,
    `last_before_cut` that the file should go on behind it and does not.
    """

    width: int
    height: int
    orientation: int = 1
    position: int = 0
    plain: bool = False
    last_before_cut: bool = False

    @property
    def upright(self) -> PageSize:
        """The size once it stands upright."""
        if self.orientation >= 5:
            return PageSize(self.height, self.width)
        return PageSize(self.width, self.height)
