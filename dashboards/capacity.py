"""How much there is, how much is asked for, and what a pod achieves."""

from __future__ import annotations

from dashboards import engine_rows, load_rows, platform_rows
from dashboards.panels import Json, board


def capacity() -> Json:
    return board(
        "hunyuan-ocr-capacity",
        "HunyuanOCR capacity",
        "For planning: how many pods the load needs, what a pod achieves, and what limits it.",
        (
            load_rows.CAPACITY_TILES,
            load_rows.SATURATION,
            load_rows.THROUGHPUT,
            load_rows.WORKLOAD,
            engine_rows.VLLM,
            platform_rows.KUBERNETES,
        ),
    )
