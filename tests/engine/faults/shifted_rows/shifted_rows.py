"""A fault for the tests: of images encoded together, the second loses its first row to the first.

The sum is right, as it was in the leak that this stands for; only the counts of each image are not.
"""

from __future__ import annotations

from typing import Any


def register() -> None:
    import torch
    from vllm.model_executor.models.hunyuan_vision import HunYuanVLForConditionalGeneration as Model

    if getattr(Model, "_shifted_rows", False):
        return
    embed = Model.embed_multimodal

    def shifted(self: Any, **inputs: Any) -> Any:
        images = list(embed(self, **inputs))
        if len(images) > 1:
            images[:2] = [torch.cat([images[0], images[1][:1]]), images[1][1:]]
        return images

    Model.embed_multimodal = shifted
    Model._shifted_rows = True
