"""What reading a picture asks of an engine."""

from __future__ import annotations

from hunyuan_ocr.engines.base import Capabilities
from hunyuan_ocr.engines.visual_tokens import PixelBounds
from hunyuan_ocr.traffic.cost import Work


def work_of(capabilities: Capabilities, width: int, height: int, output_tokens: int) -> Work:
    """The work of a prepared picture of `width` x `height` pixels.

    Without a transformer it grows with the picture's area alone, as visual tokens do.
    """
    bounds = PixelBounds(capabilities.min_pixels, max(capabilities.max_pixels.values()))
    patches = bounds.patches(width, height) if capabilities.vision_transformer else 0
    return Work(bounds.tokens(width, height), patches, output_tokens)
