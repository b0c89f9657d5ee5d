"""The engine and its card from outside: vLLM's own metrics, and DCGM's view."""

from __future__ import annotations

from dashboards.panels import AMBER, Row, lines
from dashboards.promql import BOARD, Scope, by_pod

_s = BOARD.series
_FINISHED = BOARD.rate("vllm:request_success_total", by=("finished_reason",))
_PREEMPTED = BOARD.series("vllm:num_preemptions_total")
VLLM = Row(
    "vLLM",
    (
        lines(
            "Requests in vLLM",
            "Running and waiting. A restart empties both.",
            "short",
            (f"sum({_s('vllm:num_requests_running')})", "running"),
            (f"sum({_s('vllm:num_requests_waiting')})", "waiting"),
        ),
        lines(
            "KV cache",
            "The part in use; near 100 % vLLM preempts requests and starts them anew.",
            "percentunit",
            by_pod(_s("vllm:kv_cache_usage_perc")),
            limits=((0.9, AMBER),),
            top=1,
        ),
        lines(
            "Preemptions",
            "Requests thrown out of the KV cache, which begin anew later.",
            "short",
            (f"sum(increase({_PREEMPTED}[{BOARD.window}]))", "preempted"),
        ),
        lines(
            "Time to the first token",
            "In vLLM: its queue, the image's encoder and the prompt.",
            "s",
            *(
                (BOARD.quantile(q, "vllm:time_to_first_token_seconds"), f"p{q * 100:.0f}")
                for q in (0.5, 0.95)
            ),
        ),
        lines(
            "Time between tokens",
            "Grows with the number of requests that run together.",
            "s",
            *(
                (BOARD.quantile(q, "vllm:inter_token_latency_seconds"), f"p{q * 100:.0f}")
                for q in (0.5, 0.95)
            ),
        ),
        lines(
            "How requests end in vLLM",
            "stop, length, abort (the service gave up or the client left), error, repetition.",
            "reqps",
            (_FINISHED, "{{finished_reason}}"),
            stacked=True,
        ),
    ),
)


def _dcgm(name: str, expression: str = "{}") -> str:
    """By card. The exporter's label `pod` becomes `exported_pod` where labels are not honoured."""
    namespace, pod = BOARD.matchers[0], 'pod=~"$pod"'
    found = (
        Scope((namespace, pod), BOARD.window).series(name),
        Scope((f"exported_{namespace}", f"exported_{pod}"), BOARD.window).series(name),
    )
    return " or ".join(f"max by (Hostname, gpu) ({expression.format(s)})" for s in found)


_CARD = "{{Hostname}} GPU {{gpu}}"
_SLOWED = f"rate({{}}[{BOARD.window}]) / 1e9"
DCGM = Row(
    "GPU as DCGM sees it",
    (
        lines(
            "Temperature",
            "Of the card and of its memory, in degrees Celsius.",
            "celsius",
            (_dcgm("DCGM_FI_DEV_GPU_TEMP"), _CARD),
            (_dcgm("DCGM_FI_DEV_MEMORY_TEMP"), f"{_CARD} memory"),
        ),
        lines("Power", "What the card draws.", "watt", (_dcgm("DCGM_FI_DEV_POWER_USAGE"), _CARD)),
        lines(
            "Utilisation",
            "Time in which a kernel ran.",
            "percent",
            (_dcgm("DCGM_FI_DEV_GPU_UTIL"), _CARD),
            top=100,
        ),
        lines(
            "Memory in use",
            "Of the whole card, by whoever uses it.",
            "mbytes",
            (_dcgm("DCGM_FI_DEV_FB_USED"), _CARD),
            (_dcgm("DCGM_FI_DEV_FB_FREE"), f"{_CARD} free"),
        ),
        lines(
            "Slowed",
            "The share of time in which heat, or the power limit, slowed the card.",
            "percentunit",
            (_dcgm("DCGM_FI_DEV_THERMAL_VIOLATION", _SLOWED), f"{_CARD} heat"),
            (_dcgm("DCGM_FI_DEV_POWER_VIOLATION", _SLOWED), f"{_CARD} power"),
            top=1,
        ),
        lines(
            "Last Xid error",
            "The driver's number of the last fault, 0 where there was none: 79 is a card that "
            "fell off the bus.",
            "short",
            (_dcgm("DCGM_FI_DEV_XID_ERRORS"), _CARD),
        ),
    ),
)
