"""Why the engine is spared, and how its card is."""

from __future__ import annotations

from dashboards import breaker_rows, engine_rows
from dashboards.panels import Json, board


def gpu_and_breaker() -> Json:
    return board(
        "hunyuan-ocr-gpu",
        "HunyuanOCR GPU and breaker",
        "What the circuit breaker does and why, and the card as the service, vLLM and DCGM see it.",
        (
            breaker_rows.TROUBLE_TILES,
            breaker_rows.BREAKER_CLOSELY,
            breaker_rows.GPU_CLOSELY,
            engine_rows.VLLM,
            engine_rows.DCGM,
        ),
    )
