"""How the model samples: the values of its release notes, by generation.

All of them are sent with every request, since vLLM fills the missing ones from the checkpoint's
own generation_config.json.
"""

from __future__ import annotations

from hunyuan_ocr.tasks.catalogue import Generation

SAMPLING: dict[Generation, dict[str, float | int]] = {
    "1.0": {
        "temperature": 0.0,
        "top_p": 0.95,
        "top_k": 1,
        "seed": 1234,
        "repetition_penalty": 1.0,
    },
    "1.5": {
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": -1,
        "seed": 1234,
        "repetition_penalty": 1.08,
    },
}
# Another attempt must be able to leave the loop that the first was caught in.
_RETRY = {"temperature": 0.3, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.1}


def sampling(generation: Generation, attempt: int) -> dict[str, float | int]:
    """The sampling fields of attempt 0, 1, …"""
    first = SAMPLING[generation]
    return first if attempt == 0 else first | _RETRY | {"seed": int(first["seed"]) + attempt}
