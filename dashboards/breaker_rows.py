"""The circuit breaker, and the card as the service sees it."""

from __future__ import annotations

from dashboards.panels import AMBER, GREEN, RED, Panel, Row, heat, lines, states, tile
from dashboards.promql import BOARD, by_pod

_STATES = (("closed", GREEN), ("half-open", AMBER), ("open", RED))
_BREAKER = "hunyuan_ocr_breaker_state"


def _gpu(name: str, *matchers: str) -> str:
    return BOARD.series(f"hunyuan_ocr_gpu_{name}", *matchers)


_THROTTLED = BOARD.rate("hunyuan_ocr_gpu_throttled_seconds_total", by=("pod", "instance"))
_USED, _THERE = _gpu("memory_used_bytes"), _gpu("memory_total_bytes")


def breaker_state(width: int) -> Panel:
    half_open = BOARD.series(_BREAKER, f'{_BREAKER}="half_open"')
    is_open = BOARD.series(_BREAKER, f'{_BREAKER}="open"')
    return states(
        "Breaker",
        "Open: pages get 503 breaker_open. Half-open: a few are let through to see.",
        f"sum by (pod, instance) ({half_open} or 2 * {is_open})",
        "{{pod}} {{instance}}",
        _STATES,
        width=width,
    )


def transitions(width: int) -> Panel:
    grown = BOARD.series("hunyuan_ocr_breaker_transitions_total")
    return lines(
        "Changes of the breaker",
        "The state it came to and why: error, latency, thermal, engine_hung, isolation, manual.",
        "short",
        (
            f"sum by (state, reason) (increase({grown}[{BOARD.window}])) > 0",
            "{{state}} {{reason}}",
        ),
        width=width,
    )


def temperature(width: int) -> Panel:
    return lines(
        "Temperature against thresholds",
        "Of several cards of a pod the hottest. derate: from there on the limit shrinks. open: "
        "the breaker opens. slowdown: the hardware slows the card down.",
        "celsius",
        by_pod(_gpu("temperature_celsius")),
        (f"min by (at) ({_gpu('threshold_celsius')})", "{{at}}"),
        width=width,
    )


def limit_beside_heat(width: int) -> Panel:
    limit = BOARD.series("hunyuan_ocr_slots_limit")
    return lines(
        "What is left of the limit",
        "The part that heat leaves of the slots, of the worst pod, and the slots that may be used, "
        "of the most within a day: whatever else lowers them shows in the second alone.",
        "percentunit",
        (f"min({_gpu('limit_factor_ratio')})", "left by heat"),
        (f"sum({limit}) / (sum(max_over_time({limit}[1d])) > 0)", "of the most within a day"),
        width=width,
        top=1,
    )


def _margin() -> Panel:
    return lines(
        "Margin and throttling",
        "Degrees left until the hardware slows the card down, of the worst pod, and the percentage "
        "of time in which heat throttles it.",
        "short",
        (f"min({_gpu('slowdown_margin_celsius')})", "margin, °C"),
        (f"100 * max({_THROTTLED})", "throttled, %"),
    )


def _gpu_memory() -> Panel:
    return lines(
        "Use of the GPU",
        "The share of time in which it worked, and of its memory in use.",
        "percentunit",
        (f"max({_gpu('utilization_ratio')})", "busy"),
        (f"max({_USED} / ({_THERE} > 0))", "memory in use"),
        top=1,
    )


BREAKER_AND_GPU = Row(
    "Breaker and GPU",
    (
        breaker_state(8),
        temperature(8),
        limit_beside_heat(8),
        transitions(8),
        _margin(),
        _gpu_memory(),
    ),
)

_CLOSED = BOARD.series(_BREAKER, f'{_BREAKER}="closed"')
# What the board of the engine begins with.
TROUBLE_TILES = Row(
    "Now",
    (
        tile(
            "Breakers not closed",
            "Pods whose breaker is open or half-open.",
            "short",
            f"count({_CLOSED} == 0) or vector(0)",
            ((None, GREEN), (1, RED)),
            width=4,
        ),
        tile(
            "Engine dead for",
            "How long the engine has been dead or hung, of the worst pod; after "
            "HYOCR_ENGINE_HUNG_LIMIT_S it is restarted.",
            "s",
            f"max({BOARD.series('hunyuan_ocr_engine_dead_seconds')})",
            ((None, GREEN), (3, AMBER), (30, RED)),
            width=4,
        ),
        tile(
            "Margin",
            "Degrees left until the hardware slows the card down, of the worst pod.",
            "celsius",
            f"min({_gpu('slowdown_margin_celsius')})",
            ((None, RED), (1, AMBER), (3, GREEN)),
            width=4,
            empty="no sensors",
        ),
        tile(
            "Left by heat",
            "The part of the slots that heat leaves, of the worst pod.",
            "percentunit",
            f"min({_gpu('limit_factor_ratio')})",
            ((None, RED), (0.5, AMBER), (1, GREEN)),
            width=4,
            empty="no sensors",
        ),
        tile(
            "Sensors silent",
            "Pods whose GPU probe says nothing: their limit is lowered to be careful.",
            "short",
            f"sum({_gpu('telemetry_stale')})",
            ((None, GREEN), (1, RED)),
            width=4,
            empty="no sensors",
        ),
        tile(
            "Age of the sensors",
            "Of the last sample, of the worst pod.",
            "s",
            f"max({_gpu('telemetry_age_seconds')})",
            ((None, GREEN), (5, RED)),
            width=4,
            empty="no sensors",
        ),
    ),
)

_LATENESS = BOARD.series("hunyuan_ocr_service_ratio_bucket")
_CODES = "breaker_open|engine_unavailable|engine_starting|engine_rejected"
BREAKER_CLOSELY = Row(
    "Breaker",
    (
        breaker_state(12),
        transitions(12),
        heat(
            "Lateness of pages",
            "Time of a page in the engine, of what it takes on this engine in health: from 2 on "
            "(HYOCR_BREAKER_SLOW_RATIO) it counts as slow.",
            "short",
            f"sum by (le) (increase({_LATENESS}[{BOARD.window}]))",
        ),
        lines(
            "Errors that the engine makes",
            "By code, of requests, and of pages, which may stand in documents that were answered.",
            "ops",
            (BOARD.rate("hunyuan_ocr_errors_total", f'code=~"{_CODES}"', by=("code",)), "{{code}}"),
            (
                BOARD.rate("hunyuan_ocr_pages_total", f'outcome=~"{_CODES}"', by=("outcome",)),
                "page: {{outcome}}",
            ),
        ),
        lines(
            "Engine dead or hung",
            "For how long, by pod.",
            "s",
            by_pod(BOARD.series("hunyuan_ocr_engine_dead_seconds")),
            limits=((30, RED),),
        ),
    ),
)

GPU_CLOSELY = Row(
    "GPU as the service sees it",
    (
        temperature(12),
        limit_beside_heat(12),
        lines(
            "Margin",
            "Degrees left until the hardware slows the card down.",
            "celsius",
            by_pod(_gpu("slowdown_margin_celsius")),
            limits=((3, AMBER),),
        ),
        lines(
            "Throttled by heat",
            "The share of time in which heat throttles the card.",
            "percentunit",
            (_THROTTLED, "{{pod}} {{instance}}"),
            top=1,
        ),
        lines(
            "Clock",
            "Of the multiprocessors, in MHz. A card at its target temperature gives it up.",
            "suffix: MHz",
            by_pod(_gpu("sm_clock_megahertz")),
        ),
        lines("Power", "What the card draws.", "watt", by_pod(_gpu("power_watts"))),
        lines(
            "Utilisation",
            "The share of time in which the card worked.",
            "percentunit",
            by_pod(_gpu("utilization_ratio")),
            top=1,
        ),
        lines(
            "Memory",
            "In use, and what there is.",
            "bytes",
            by_pod(_USED),
            (f"min({_THERE})", "there is"),
        ),
    ),
)
