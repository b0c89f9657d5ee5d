"""The first board to open: are users hurt, why, and where to look."""

from __future__ import annotations

from dashboards import breaker_rows, engine_rows, load_rows, platform_rows, slo_rows
from dashboards.panels import Json, board


def overview() -> Json:
    return board(
        "hunyuan-ocr-overview",
        "HunyuanOCR overview",
        "From what users feel at the top to its causes below.",
        (
            slo_rows.TILES,
            slo_rows.BUDGET,
            slo_rows.SLO_AND_ERRORS,
            slo_rows.LATENCY_BY_STAGE,
            load_rows.SATURATION,
            breaker_rows.BREAKER_AND_GPU,
            engine_rows.VLLM,
            load_rows.WORKLOAD,
            engine_rows.DCGM,
            platform_rows.KUBERNETES,
            platform_rows.PROCESS,
        ),
    )
