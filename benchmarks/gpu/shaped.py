"""A model folder with HunyuanOCR 1.0's dimensions and no weights, for `--load-format dummy`.

Tokenizer, template and special tokens come from the tiny checkpoint; the vocabulary is filled up to
the real size, so that every id decodes to some text.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

VOCABULARY = 120818
TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": 1024, "intermediate_size": 3584,
    "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 32768,
}  # fmt: skip
VISION = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "num_key_value_heads": 16, "out_hidden_size": 1024,
    "text_hidden_size": 1024, "max_image_size": 2048, "img_max_token_num": 4096,
}  # fmt: skip
SECTION = [16, 16, 16, 16]
PIXELS = {"min_pixels": 512 * 512, "max_pixels": 2048 * 2048}


def _load(path: Path) -> Any:
    return json.loads(path.read_text())


def write(source: Path, target: Path) -> None:
    """`source`: a tiny checkpoint, flat (native model) or nested (Transformers backend)."""
    ignored = shutil.ignore_patterns("*.safetensors")
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignored)
    config = _load(source / "config.json")
    if "text_config" in config:
        config["text_config"] |= TEXT
        config["text_config"]["rope_parameters"]["mrope_section"] = SECTION
    else:
        config |= TEXT | {"attention_head_dim": 128, "org_vocab_size": VOCABULARY}
        config["rope_scaling"]["xdrope_section"] = SECTION
    config["vision_config"] |= VISION
    preprocessor = _load(source / "preprocessor_config.json") | PIXELS
    tokenizer = _load(source / "tokenizer.json")
    vocabulary = tokenizer["model"]["vocab"]
    taken = set(vocabulary.values()) | {token["id"] for token in tokenizer["added_tokens"]}
    vocabulary |= {f"Ġw{i}": i for i in range(VOCABULARY) if i not in taken}
    for name, content in (
        ("config.json", config), ("preprocessor_config.json", preprocessor),
        ("tokenizer.json", tokenizer),
    ):  # fmt: skip
        (target / name).write_text(json.dumps(content, ensure_ascii=False))
