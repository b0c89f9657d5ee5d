"""`hunyuan-ocr serve` that measures nothing, so that `telemetry-cost` can tell what that costs.

Metrics are neither found by their labels nor changed, nothing is added up for usage records, no
request is written to the log, the event loop's lag is not watched. What goes on: the times of
stages, which answers show as Server-Timing, and request ids. Traces, log level and the writing of
usage records are settings.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from prometheus_client import Counter, Enum, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from hunyuan_ocr import app, cli
from hunyuan_ocr.api.middleware import RequestScope
from hunyuan_ocr.telemetry.usage import RequestUsage


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _itself(metric: Any, *_: Any) -> Any:
    return metric


async def _watch_nothing(_: object) -> None:
    await asyncio.Event().wait()


def main() -> None:
    replaced: dict[Any, tuple[str, ...]] = {
        Counter: ("inc",),
        Gauge: ("inc", "dec", "set", "set_function"),
        Histogram: ("observe",),
        Enum: ("state",),
        RequestScope: ("_record",),
        RequestUsage: ("page_read", "page_failed", "add_tokens", "add_turn", "add_retry"),
    }
    for owner, names in replaced.items():
        for name in names:
            assert callable(getattr(owner, name)), f"{owner.__name__} has no {name} any more"
            setattr(owner, name, _nothing)
    setattr(MetricWrapperBase, "labels", _itself)  # noqa: B010 - mypy allows no other way
    assert callable(app._observe_lag)
    setattr(app, "_observe_lag", _watch_nothing)  # noqa: B010
    sys.argv[1:] = ["serve"]
    cli.main()


if __name__ == "__main__":
    main()
