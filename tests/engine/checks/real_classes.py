"""The plugin's functions on vLLM's own classes: run by an engine's Python, plugin on PYTHONPATH.

The second model runner needs a GPU to serve, but not to gather rows; and the native model's own
positions are there to compare with, as long as no caller typed an image-start token.
"""

from __future__ import annotations

import importlib
import random
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from vllm.multimodal.inputs import PlaceholderRange

plugin: Any = importlib.import_module("hunyuan_ocr_plugin")

IMAGE_START, IMAGE, TEXT = 6, 8, 20


def feature(offset: int, rows: int, **data: Any) -> Any:
    position = PlaceholderRange(offset=offset, length=rows)
    return SimpleNamespace(
        modality="image", identifier="image", mm_position=position, data=data
    )  # fmt: skip


def gather(rows: int) -> None:
    """One step of a prompt with an image of 14 placeholder tokens, for which `rows` are stored."""
    from vllm.v1.worker.gpu.mm.encoder_runner import EncoderRunner

    features = {"first": [feature(2, 14)], "second": []}
    cache = SimpleNamespace(mm_features=features, encoder_outputs={"image": torch.zeros(rows, 4)})
    device = torch.device("cpu")
    runner = EncoderRunner(SimpleNamespace(), 64, 4, cache, torch.float32, device)
    lengths, starts = np.array([20, 5]), np.array([0, 20, 25])
    runner.gather_mm_embeddings(["first", "second"], 25, lengths, starts, lengths, np.zeros(2, int))


def check_second_runner() -> None:
    plugin.register()
    gather(14)
    for rows in (13, 15):
        try:
            gather(rows)
        except plugin.LeakError:
            continue
        raise AssertionError(f"{rows} rows for 14 tokens went through")


def prompt(rng: random.Random) -> tuple[list[int], list[Any]]:
    """Tokens of one to three images between texts, and their features."""
    tokens, features = [TEXT], []
    for _ in range(rng.randint(1, 3)):
        height, width = 2 * rng.randint(1, 12), 2 * rng.randint(1, 12)
        (rows,) = plugin.rows_per_image([(1, height, width)], 2)
        tokens += [TEXT] * rng.randint(0, 5) + [IMAGE_START]
        grid = SimpleNamespace(data=torch.tensor([1, height, width]))
        features.append(feature(len(tokens), rows, image_grid_thw=grid))
        tokens += [IMAGE] * rows + [TEXT]
    return tokens, features


def check_positions() -> None:
    from vllm.model_executor.models.hunyuan_vision import HunYuanVLForConditionalGeneration

    original = HunYuanVLForConditionalGeneration.get_xdrope_input_positions
    rng = random.Random(3)
    for axes in (3, 4) * 50:
        config = SimpleNamespace(
            image_start_token_id=IMAGE_START, rope_scaling={"xdrope_section": [8] * axes},
            vision_config=SimpleNamespace(spatial_merge_size=2),
        )  # fmt: skip
        model, (tokens, features) = SimpleNamespace(config=config), prompt(rng)
        ours = plugin.image_positions(model, tokens, features)
        assert torch.equal(ours, original(model, tokens, features))
        typed = [*tokens, IMAGE_START, TEXT, TEXT]  # by a caller, after the images
        longer = plugin.image_positions(model, typed, features)
        assert torch.equal(longer[:, : len(tokens)], ours)


if __name__ == "__main__":
    if "positions" in sys.argv[1:]:
        check_positions()  # before the plugin replaces them
    check_second_runner()
