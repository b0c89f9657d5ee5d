"""The usage record of a request: who brought pages, what came of it, and what it used."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from hunyuan_ocr.api.context import RequestContext

Outcome = Literal["answered", "failed", "cancelled", "refused"]
_UNAVAILABLE = 503


def usage_record(context: RequestContext, route: str, status: int) -> dict[str, object]:
    """`status` as metrics and log line have it."""
    return {
        "message": "usage",
        "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "request_id": context.request_id,
        "tenant": context.tenant,
        "route": route,
        "status": status,
        "class": context.usage.priority,
        "outcome": outcome(context, status),
        **context.usage.record(),
    }


def outcome(context: RequestContext, status: int) -> Outcome:
    """Refused is what was turned away before it had the engine, for the caller's fault or for want
    of room; failed, what was taken on and not answered."""
    if context.cancelled:
        return "cancelled"
    if 200 <= status < 300 and context.code is None:
        return "answered"
    turned_away = 400 <= status < 500 or status == _UNAVAILABLE
    return "refused" if turned_away and not context.usage.had_engine else "failed"
