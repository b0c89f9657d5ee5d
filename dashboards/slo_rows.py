"""Whether users are hurt: tiles, budget and burn, SLO and errors, latency."""

from __future__ import annotations

from dashboards.panels import AMBER, GREEN, RED, Panel, Row, heat, lines, tile
from dashboards.promql import BOARD, RECORDED, ratio
from dashboards.slo import (
    AVAILABILITY,
    LATENCY,
    REQUESTS,
    Objective,
    bad_requests,
    counted_requests,
    interactive_answered,
    interactive_within,
)

_INTERACTIVE = ('class="interactive"', 'status=~"2.."')
_WITHIN = ratio(interactive_within(BOARD), interactive_answered(BOARD))
_s = BOARD.series
_WINDOWS = ("1h", "6h", "1d", "3d")


def _unreachable() -> Panel:
    # Whatever instance is chosen: one that was never reached is none of the choices.
    down = f"count({RECORDED.series('up')} == 0) or vector(0)"
    text = "Scrapes that fail: the pod is gone, or Prometheus may not reach its port 9180."
    return tile("Unreachable", text, "short", down, ((None, GREEN), (1, RED)))


def _shed() -> str:
    seconds = "hunyuan_ocr_offered_engine_seconds_total"
    return ratio(BOARD.rate(seconds, 'outcome!="admitted"'), BOARD.rate(seconds))


TILES = Row(
    "Now",
    (
        tile(
            "Requests",
            "Requests that ask for work, whatever became of them.",
            "reqps",
            BOARD.rate(f"{REQUESTS}_count", 'method="POST"'),
        ),
        tile(
            "Error ratio",
            "Requests that failed (5xx) or were refused for want of capacity (429 without "
            "quotas), of those that count for the SLO.",
            "percentunit",
            ratio(bad_requests(BOARD), counted_requests(BOARD)),
            (
                (None, GREEN),
                (AVAILABILITY.budget, AMBER),
                (round(14.4 * AVAILABILITY.budget, 4), RED),
            ),
        ),
        tile(
            "Within SLO",
            "Interactive requests answered within HYOCR_SLO_INTERACTIVE_S, of those that "
            "succeeded; 95 % is promised.",
            "percentunit",
            _WITHIN,
            ((None, RED), (LATENCY.share, AMBER), (0.97, GREEN)),
        ),
        tile(
            "p95 interactive",
            "Nineteen of twenty interactive requests that succeeded took no longer.",
            "s",
            BOARD.quantile(0.95, REQUESTS, *_INTERACTIVE),
        ),
        tile(
            "Shed ratio",
            "Work refused because it could not be done in time, of the work asked for, in "
            "seconds of the engine.",
            "percentunit",
            _shed(),
            ((None, GREEN), (0.001, AMBER), (0.05, RED)),
        ),
        tile(
            "Slots in use",
            "Slots of the engine in use, of those that may be. Near 100 % pages wait.",
            "percentunit",
            ratio(f"sum({_s('hunyuan_ocr_slots_held')})", f"sum({_s('hunyuan_ocr_slots_limit')})"),
            ((None, GREEN), (0.9, AMBER)),
            empty="no engine",
        ),
        tile(
            "Waiting in vLLM",
            "Requests that vLLM holds and does not run. The service keeps this near 0; more "
            "means that its limit is too high.",
            "short",
            f"sum({_s('vllm:num_requests_waiting')})",
            ((None, GREEN), (4, AMBER)),
            empty="no vLLM",
        ),
        _unreachable(),
    ),
)


def _left(objective: Objective) -> Panel:
    spent = RECORDED.series(objective.ratio("30d"))
    return tile(
        f"{objective.name.capitalize()} budget left",
        f"Of the {objective.budget:.1%} that may be bad in 30 days, the part that is left; "
        "where Prometheus keeps less, in what it keeps. Below 0 the promise is broken.",
        "percentunit",
        f"1 - max({spent}) / {objective.budget}",
        ((None, RED), (0, AMBER), (0.25, GREEN)),
        width=8,
    )


def _burn(objective: Objective) -> Panel:
    return lines(
        f"{objective.name.capitalize()} burn rate",
        "How many times as fast as allowed the budget is spent, over windows of four lengths; at 1 "
        "it lasts 30 days, from 14.4 on somebody is called. The worst job of those chosen.",
        "short",
        *(
            (f"max({RECORDED.series(objective.ratio(w))}) / {objective.budget}", w)
            for w in _WINDOWS
        ),
        width=12,
        limits=((1, AMBER), (14.4, RED)),
    )


_FIRING = RECORDED.series("ALERTS", 'alertname=~"HunyuanOcr.+"', 'alertstate="firing"')
BUDGET = Row(
    "Error budget and burn",
    (
        _left(AVAILABILITY),
        _left(LATENCY),
        tile(
            "Alerts firing",
            "Each has a runbook in docs/runbooks.",
            "short",
            f"count({_FIRING}) or vector(0)",
            ((None, GREEN), (1, RED)),
            width=8,
        ),
        _burn(AVAILABILITY),
        _burn(LATENCY),
    ),
)

_REFUSED = BOARD.rate(
    "hunyuan_ocr_offered_engine_seconds_total", 'outcome!="admitted"', by=("outcome",)
)
_PAGES_FAILED = BOARD.rate("hunyuan_ocr_pages_total", 'outcome!="ok"', by=("outcome",))
SLO_AND_ERRORS = Row(
    "SLO and errors",
    (
        lines(
            "Requests by status",
            "499: the client left. 429: refused, by quota or for want of capacity.",
            "reqps",
            (
                BOARD.rate(f"{REQUESTS}_count", 'method="POST"', by=("status",)),
                "{{status}}",
            ),
            stacked=True,
        ),
        lines(
            "Good requests",
            "Requests that were neither refused for want of capacity nor failed, and "
            "interactive ones within their time. Lines: what is promised.",
            "percentunit",
            (f"1 - {ratio(bad_requests(BOARD), counted_requests(BOARD))}", "available"),
            (_WITHIN, "interactive within SLO"),
            limits=((LATENCY.share, AMBER), (AVAILABILITY.share, RED)),
            top=1,
        ),
        lines(
            "Errors by code",
            "Requests answered with a problem, by its code, and pages that failed, most of them in "
            "documents that were answered. README.md says what each code means.",
            "ops",
            (f"{BOARD.rate('hunyuan_ocr_errors_total', by=('code',))} > 0", "{{code}}"),
            (f"{_PAGES_FAILED} > 0", "page: {{outcome}}"),
            width=8,
        ),
        lines(
            "Work refused",
            "Seconds of the engine that were refused in a second, by why.",
            "short",
            (_REFUSED, "{{outcome}}"),
            stacked=True,
        ),
        lines(
            "Clients that left",
            "Requests whose client closed the connection before the answer: often its own "
            "timeout is shorter than ours.",
            "reqps",
            (BOARD.rate("hunyuan_ocr_cancelled_total"), "left"),
        ),
        lines(
            "Retries in the engine",
            "Turns at the engine that were tried again, by why.",
            "ops",
            (
                BOARD.rate("hunyuan_ocr_engine_retries_total", by=("reason",)),
                "{{reason}}",
            ),
        ),
    ),
)

_STAGES = "hunyuan_ocr_stage_duration_seconds"
_SUCCEEDED = BOARD.series(f"{REQUESTS}_bucket", 'method="POST"', 'status=~"2.."')
_QUEUED = BOARD.series(f"{_STAGES}_bucket", 'stage="queue"')
LATENCY_BY_STAGE = Row(
    "Latency by stage",
    (
        lines(
            "Interactive requests",
            "Quantiles of those that succeeded. Points are traces of single requests.",
            "s",
            *(
                (BOARD.quantile(q, REQUESTS, *_INTERACTIVE), f"p{q * 100:.0f}")
                for q in (0.5, 0.95, 0.99)
            ),
            (f"max({_s('hunyuan_ocr_slo_interactive_seconds')})", "SLO"),
            exemplars=True,
        ),
        lines(
            "p95 by class",
            "Of requests that succeeded.",
            "s",
            (BOARD.quantile(0.95, REQUESTS, 'status=~"2.."', by=("class",)), "{{class}}"),
        ),
        heat(
            "All requests",
            "How many requests that succeeded took how long.",
            "s",
            f"sum by (le) (increase({_SUCCEEDED}[{BOARD.window}]))",
        ),
        lines(
            "p95 by stage",
            "receive: the body arrives. inspect: its header. queue: waiting for its turn. "
            "prepare: decoded, turned, scaled. engine: read.",
            "s",
            (BOARD.quantile(0.95, _STAGES, by=("stage",)), "{{stage}}"),
        ),
        lines(
            "Where time goes",
            "Seconds that pages and requests spend in each stage in a second: which stage to "
            "look at.",
            "short",
            (BOARD.rate(f"{_STAGES}_sum", by=("stage",)), "{{stage}}"),
            stacked=True,
        ),
        heat(
            "Wait in the queue",
            "How many pages waited how long for their turn.",
            "s",
            f"sum by (le) (increase({_QUEUED}[{BOARD.window}]))",
        ),
    ),
)
