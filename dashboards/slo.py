"""What is promised, and what counts for and against it.

Availability: of the requests that were answered, refused for want of capacity or failed, those
that were not refused and did not fail. A caller's own mistakes and quotas count neither way, nor do
those who left. Requests are what is counted: a document that was answered is good, also where pages
of it failed. `hunyuan_ocr_errors_total` says how many of the 429 were quotas.

Latency: of the interactive requests that succeeded, those that did within the time that the
service itself is set to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.promql import Scope, total

REQUESTS = "hunyuan_ocr_request_duration_seconds"
_ANSWERED_INTERACTIVE = ('class="interactive"', 'method="POST"', 'status=~"2.."')


@dataclass(frozen=True, slots=True)
class Objective:
    """`share` of what counts must be good; `bad` and `counted` name the recorded rates of both."""

    name: str
    share: float
    bad: str
    counted: str

    @property
    def budget(self) -> float:
        return round(1 - self.share, 6)

    def ratio(self, window: str) -> str:
        """The recorded share of bad ones over a window such as `1h`."""
        return f"{self.bad}:ratio_rate{window}"


AVAILABILITY = Objective(
    "availability",
    0.999,
    "namespace_job:hunyuan_ocr_requests_bad",
    "namespace_job:hunyuan_ocr_requests_counted",
)
LATENCY = Objective(
    "latency",
    0.95,
    "namespace_job:hunyuan_ocr_interactive_slow",
    "namespace_job:hunyuan_ocr_interactive_answered",
)
OBJECTIVES = (AVAILABILITY, LATENCY)


def counted_requests(scope: Scope, by: Sequence[str] = ()) -> str:
    return _without_quotas(scope, "2..|5..|429", by)


def bad_requests(scope: Scope, by: Sequence[str] = ()) -> str:
    return _without_quotas(scope, "5..|429", by)


def _without_quotas(scope: Scope, statuses: str, by: Sequence[str]) -> str:
    requests = scope.rate(f"{REQUESTS}_count", 'method="POST"', f'status=~"{statuses}"', by=by)
    quotas = scope.rate("hunyuan_ocr_errors_total", 'code="quota_exceeded"', by=by)
    # Two rates of what grew together may differ in their last digits.
    return f"clamp_min({requests} - {quotas}, 0)"


def interactive_answered(scope: Scope, by: Sequence[str] = ()) -> str:
    return scope.rate(f"{REQUESTS}_count", *_ANSWERED_INTERACTIVE, by=by)


def interactive_within(scope: Scope, by: Sequence[str] = ()) -> str:
    """Those within the bucket that `hunyuan_ocr_slo_interactive_seconds` names in its `le`."""
    buckets = scope.series(f"{REQUESTS}_bucket", *_ANSWERED_INTERACTIVE)
    instance = "namespace, job, instance"
    setting = scope.series("hunyuan_ocr_slo_interactive_seconds")
    within = f"rate({buckets}[{scope.window}]) and on ({instance}, le) {setting}"
    return total(within, by)
