"""What is asked for and what there is to do it with: saturation, scaling, workload."""

from __future__ import annotations

from dashboards.panels import AMBER, RED, Row, lines
from dashboards.promql import BOARD, NAMESPACE, ratio, total

_OFFERED = "hunyuan_ocr_offered_load_engine_seconds_per_second"

_s = BOARD.series
_LOAD = f"sum({_s(_OFFERED)})"
_READY = f"sum({_s('hunyuan_ocr_ready')})"
_PAGES = BOARD.rate("hunyuan_ocr_pages_total", 'outcome="ok"')
_PREDICTED, _USED = (
    BOARD.rate("hunyuan_ocr_engine_slot_seconds_total", f'kind="{kind}"')
    for kind in ("predicted", "used")
)
_WORK = "hunyuan_ocr_offered_engine_seconds_total"

SATURATION = Row(
    "Saturation and scaling",
    (
        lines(
            "Slots",
            "Slots of the engine in use and those that may be. The limit shrinks by heat, by a "
            "slow engine and while the breaker is half-open.",
            "short",
            (f"sum({_s('hunyuan_ocr_slots_held')})", "in use"),
            (f"sum({_s('hunyuan_ocr_slots_limit')})", "limit"),
            (f"sum({_s('hunyuan_ocr_pages_in_flight')})", "pages in the engine"),
        ),
        lines(
            "Pages waiting",
            "Pages that were admitted and wait, by class.",
            "short",
            (total(_s("hunyuan_ocr_pages_waiting"), ("class",)), "{{class}}"),
            stacked=True,
        ),
        lines(
            "Fullness of the queues",
            "Work that waits, of what may, by class; at 100 % more is refused. The fullest pod.",
            "percentunit",
            (f"max by (class) ({_s('hunyuan_ocr_queue_fullness_ratio')})", "{{class}}"),
            limits=((0.9, RED),),
        ),
        lines(
            "Offered load",
            "Work in flight, waiting and refused, in engines that it would take: what "
            "autoscaling follows. Beside it the pods that are ready.",
            "short",
            (_LOAD, "engines needed"),
            (_READY, "pods ready"),
            (f"sum({_s('hunyuan_ocr_draining')})", "pods draining"),
        ),
        lines(
            "Autoscaler",
            "What the HorizontalPodAutoscalers of the namespace want, have and may have at "
            "most. From kube-state-metrics.",
            "short",
            *(
                (
                    f"max by (horizontalpodautoscaler) ({NAMESPACE.series(name)})",
                    f"{{{{horizontalpodautoscaler}}}} {word}",
                )
                for name, word in (
                    ("kube_horizontalpodautoscaler_status_desired_replicas", "wanted"),
                    ("kube_horizontalpodautoscaler_status_current_replicas", "there"),
                    ("kube_horizontalpodautoscaler_spec_max_replicas", "most"),
                )
            ),
        ),
        lines(
            "Degradation",
            "0: none. 1: batch is slowed. 2: pages are shown to the engine with fewer pixels. "
            "Beside it the pages read with fewer.",
            "short",
            (f"max({_s('hunyuan_ocr_degradation_step')})", "step"),
            (BOARD.rate("hunyuan_ocr_degraded_pages_total"), "degraded pages/s"),
        ),
    ),
)

WORKLOAD = Row(
    "Workload",
    (
        lines(
            "Pages by task",
            "Pages that were read.",
            "suffix: pages/s",
            (
                BOARD.rate("hunyuan_ocr_pages_total", 'outcome="ok"', by=("task",)),
                "{{task}}",
            ),
            stacked=True,
        ),
        lines(
            "Pages by outcome",
            "ok, or the code of what went wrong; by the engine that read them.",
            "suffix: pages/s",
            (
                f"{BOARD.rate('hunyuan_ocr_pages_total', by=('engine', 'outcome'))} > 0",
                "{{engine}} {{outcome}}",
            ),
        ),
        lines(
            "How answers end",
            "stop: the model was done. length: cut off at the limit of tokens. repetition: it "
            "said the same over and over. blank: nothing was on the page.",
            "suffix: pages/s",
            (BOARD.rate("hunyuan_ocr_finished_pages_total", by=("reason",)), "{{reason}}"),
            stacked=True,
        ),
        lines(
            "Tokens",
            "As the engine counted them. Without vLLM there are none.",
            "suffix: tokens/s",
            (BOARD.rate("hunyuan_ocr_tokens_total", by=("direction",)), "{{direction}}"),
        ),
        lines(
            "Size of a page",
            "Megapixels of a source page, of those read.",
            "suffix: Mpx",
            (ratio(BOARD.rate("hunyuan_ocr_megapixels_total"), _PAGES), "mean"),
        ),
        lines(
            "Cost of a page",
            "Slot seconds a page takes, as priced when it was admitted and as measured. What "
            "drifts apart here makes waits be told wrongly.",
            "s",
            (ratio(_PREDICTED, _PAGES), "predicted"),
            (ratio(_USED, _PAGES), "used"),
        ),
    ),
)

# What the board for planning begins with.
CAPACITY_TILES = Row(
    "Enough?",
    (
        lines(
            "Load of a pod",
            "Offered load divided by the pods that are ready: at 1 they are all at work all "
            "the time, above it work is refused. Autoscaling aims at 80 %.",
            "percentunit",
            (ratio(_LOAD, _READY), "load"),
            limits=((0.8, AMBER), (1, RED)),
            width=12,
        ),
        lines(
            "Load against last week's",
            "Offered load now and a week ago, averaged over an hour: what to expect tonight.",
            "short",
            (f"sum(avg_over_time({_s(_OFFERED)}[1h]))", "now"),
            (f"sum(avg_over_time({_s(_OFFERED)}[1h] offset 1w))", "a week ago"),
            width=12,
        ),
    ),
)

# What a pod achieves.
THROUGHPUT = Row(
    "What a pod achieves",
    (
        lines(
            "Pages of a pod",
            "Pages read in a second, divided by the pods that are ready.",
            "suffix: pages/s",
            (ratio(_PAGES, _READY), "pages"),
        ),
        lines(
            "Tokens of a pod",
            "Tokens written in a second, divided by the pods that are ready.",
            "suffix: tokens/s",
            (
                ratio(BOARD.rate("hunyuan_ocr_tokens_total", 'direction="output"'), _READY),
                "output",
            ),
        ),
        lines(
            "Prediction",
            "Cost as priced, of the cost as measured. Below 1 too much is admitted, above 1 "
            "too much is refused.",
            "short",
            (
                ratio(_PREDICTED, _USED),
                "predicted / used",
            ),
            limits=((1, AMBER),),
        ),
        lines(
            "Work asked for",
            "Seconds of the engine asked for in a second, admitted or refused.",
            "short",
            (BOARD.rate(_WORK, by=("outcome",)), "{{outcome}}"),
            stacked=True,
        ),
        lines(
            "Measured against health",
            "Time of a page in the engine, of what it takes on this engine in health.",
            "short",
            *(
                (BOARD.quantile(q, "hunyuan_ocr_service_ratio"), f"p{q * 100:.0f}")
                for q in (0.5, 0.95)
            ),
            limits=((2, AMBER),),
        ),
        lines(
            "Quotas counted alone",
            "Pods that cannot reach Redis and count each caller's quota for themselves.",
            "short",
            (f"sum({_s('hunyuan_ocr_quota_store_down')})", "pods"),
        ),
    ),
)
