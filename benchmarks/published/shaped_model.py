"""Write a model folder of HunyuanOCR's shape, without weights: for an engine's dummy weights.

    python -m benchmarks.published.shaped_model FOLDER [--layout tencent|transformers]

Sizes are those of the 1.0 checkpoint's config.json: 0.54 B parameters of the language model and
0.46 B of the vision transformer. What it answers means nothing; what it costs is the model's.
`tencent` is for vLLM up to 0.28, `transformers` for later ones and for transformers itself.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

_FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "models"
_TINY = {"tencent": "tiny-hunyuan-vl-native", "transformers": "tiny-hunyuan-vl"}
_VOCABULARY = 120_818
_TEXT = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "attention_head_dim": 128,
    "intermediate_size": 3584,
    "max_position_embeddings": 32768,
    "vocab_size": _VOCABULARY,
    "org_vocab_size": _VOCABULARY,
}
_VISION = {
    "hidden_size": 1152,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "intermediate_size": 4304,
    "out_hidden_size": 1024,
    "text_hidden_size": 1024,
    "max_image_size": 2048,
}
_SECTION = [16, 16, 16, 16]  # of half a head's dimensions, for the four axes
_PIXELS = {"min_pixels": 512**2, "max_pixels": 2048**2}


def write(folder: Path, layout: str) -> None:
    """Everything an engine reads but weights; `folder` must not exist."""
    shutil.copytree(
        _FIXTURES / _TINY[layout], folder, ignore=shutil.ignore_patterns("*.safetensors")
    )
    config = _read(folder / "config.json")
    text = config.get("text_config", config)
    text.update({name: size for name, size in _TEXT.items() if name in text})
    if layout == "tencent":
        config["rope_scaling"]["xdrope_section"] = _SECTION
    else:
        text["rope_parameters"]["mrope_section"] = _SECTION
    config["vision_config"].update(_VISION)
    _write(folder / "config.json", config)
    preprocessor = _read(folder / "preprocessor_config.json")
    _write(folder / "preprocessor_config.json", preprocessor | _PIXELS)
    tokenizer = _read(folder / "tokenizer.json")
    words = tokenizer["model"]["vocab"]
    # Every token that may be generated must decode to something: Ġ is a byte-level tokenizer's
    # space.
    words.update({f"Ġw{number}": number for number in range(len(words), _VOCABULARY)})
    _write(folder / "tokenizer.json", tokenizer)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to, for example /tmp/shaped")
    parser.add_argument("--layout", choices=tuple(_TINY), default="tencent")
    options = parser.parse_args()
    write(options.folder, options.layout)


if __name__ == "__main__":
    main()
