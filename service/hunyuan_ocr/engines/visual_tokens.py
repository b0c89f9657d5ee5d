"""What a picture costs HunyuanOCR in tokens, and how large it may be within a budget.

The arithmetic is the model's image processor's (`smart_resize` of its preprocessor), which vLLM
and transformers share: sides become multiples of 32 and the area is brought between two bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SIDE = 32  # pixels of one merged patch: patch size 16, merged 2 x 2
ASPECT_MAX = 200  # the processor refuses longer strips


@dataclass(frozen=True, slots=True)
class PixelBounds:
    """The preprocessor's `min_pixels` and `max_pixels`."""

    min_pixels: int
    max_pixels: int

    def resized(self, width: int, height: int) -> tuple[int, int]:
        """The size in pixels that the model sees of a picture of `width` x `height`."""
        new_h, new_w = _multiple(height), _multiple(width)
        if new_h * new_w > self.max_pixels:
            shrink = math.sqrt(height * width / self.max_pixels)
            new_h = max(SIDE, math.floor(height / shrink / SIDE) * SIDE)
            new_w = max(SIDE, math.floor(width / shrink / SIDE) * SIDE)
        elif new_h * new_w < self.min_pixels:
            grow = math.sqrt(self.min_pixels / (height * width))
            new_h = math.ceil(height * grow / SIDE) * SIDE
            new_w = math.ceil(width * grow / SIDE) * SIDE
        return new_w, new_h

    def tokens(self, width: int, height: int) -> int:
        """Tokens of the prompt that a picture takes: a newline a row, a start and an end."""
        new_w, new_h = self.resized(width, height)
        return (new_h // SIDE) * (new_w // SIDE + 1) + 2

    def patches(self, width: int, height: int) -> int:
        """Patches that the vision transformer sees of a picture, before they are merged."""
        new_w, new_h = self.resized(width, height)
        return 4 * (new_h // SIDE) * (new_w // SIDE)


def _multiple(side: int) -> int:
    return round(side / SIDE) * SIDE


def pixels_within(token_budget: int) -> int:
    """The largest area in pixels that stays within `token_budget` tokens whatever its shape.

    The worst shape is a strip one patch wide, where every row of one patch costs two tokens.
    """
    return max(1, (token_budget - 2) // 2) * SIDE * SIDE
