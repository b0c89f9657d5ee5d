"""The service as it stands before a real vLLM with the tiny checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.api.server import Server, running_server

# The tiny checkpoint's preprocessor_config.json and context; it was trained without a penalty.
TINY = {
    "engine": "vllm",
    "vllm_generation": "1.0",
    "vllm_min_pixels": 16384,
    "vllm_max_pixels": 442368,
    "vllm_page_pixels": 442368,
    "vllm_encoder_tokens": 2048,
    "vllm_max_output_tokens": 1024,
    "vllm_concurrency": 16,
    "decode_workers": 1,
    # On a CPU what waits takes its time.
    "standard_max_queue_s": 300,
    "standard_timeout_s": 300,
}


@contextmanager
def sidecar(folder: Path, engine_url: str, **settings: object) -> Iterator[Server]:
    """Wait until it is ready, so through its isolation self-test, unless `probe="livez"`."""
    given: dict[str, Any] = TINY | settings
    with running_server(folder, vllm_url=engine_url, **given) as server:
        yield server
