"""What is known about one request while it is served."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from hunyuan_ocr.telemetry.stages import StageRecorder
from hunyuan_ocr.telemetry.usage import RequestUsage

_KEY = "hunyuan_ocr"


@dataclass(slots=True)
class RequestContext:
    """`status` is what was sent, 0 before that; `code` is the problem's code where there was one;
    `fields` go into the log line, `headers` are asked for when the answer begins.
    """

    request_id: str
    stages: StageRecorder
    clock: Callable[[], float]
    started: float
    tenant: str = "anonymous"
    status: int = 0
    code: str | None = None
    cancelled: bool = False
    fields: dict[str, Any] = field(default_factory=dict)
    headers: Callable[[], Mapping[str, str]] = dict

    @property
    def usage(self) -> RequestUsage:
        return self.stages.usage

    def elapsed_s(self) -> float:
        return self.clock() - self.started

    def elapsed_ms(self) -> float:
        return round(self.elapsed_s() * 1e3, 1)


def context_of(scope: MutableMapping[str, Any]) -> RequestContext:
    context = scope[_KEY]
    assert isinstance(context, RequestContext)  # noqa: S101
    return context


def attach(scope: MutableMapping[str, Any], context: RequestContext) -> None:
    scope[_KEY] = context
