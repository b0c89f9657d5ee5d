"""The words of the circuit breaker: its states, reasons, options, and a page's permit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType, TracebackType


class State(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Reason(StrEnum):
    """Why it is open; of several the worst, which stands last here, is told."""

    ERROR = "error"
    LATENCY = "latency"
    THERMAL = "thermal"
    ENGINE_HUNG = "engine_hung"
    ISOLATION = "isolation"
    MANUAL = "manual"


class Outcome(Enum):
    """IGNORED says nothing of the engine: the client left, or the page itself was at fault."""

    OK = "ok"
    FAILURE = "failure"
    IGNORED = "ignored"


class OpenPolicy(StrEnum):
    """What the caller does with pages while it is open."""

    REFUSE = "refuse"
    DEGRADE = "degrade"  # fewer and smaller pages go on


@dataclass(frozen=True, slots=True)
class BreakerOptions:
    """Shares are of the outcomes of the last `window_s`, of which there must be `min_outcomes`.

    `cool_down_s` doubles up to `cool_down_max_s` while probes fail or it trips again soon.
    `probes` pages may be in the engine at a time while it is half-open, and must be answered
    before it closes. After a thermal opening they go on for `thermal_trial_s`, since heat comes
    back more slowly than pages are read; longer while it is warm, up to `thermal_trial_max_s`,
    since a card in a warm room may always be. Reasons missing in `policies` are refused.
    """

    window_s: float = 30.0
    min_outcomes: int = 10
    failure_share: float = 0.5
    slow_share: float = 0.4
    cool_down_s: float = 10.0
    cool_down_max_s: float = 120.0
    probes: int = 3
    thermal_trial_s: float = 25.0
    thermal_trial_max_s: float = 600.0
    held_retry_after_s: float = 30.0
    probing_retry_after_s: float = 2.0
    policies: Mapping[Reason, OpenPolicy] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Transition:
    """`at` is the caller's time of the call in which it happened."""

    before: State
    after: State
    reason: Reason
    at: float
    sentence: str


class Permit:
    """One page on its way. The first `settle` counts; leaving the context settles as IGNORED."""

    __slots__ = ("_settle",)

    def __init__(self, settle: Callable[[float | None, Outcome, bool], None]) -> None:
        self._settle: Callable[[float | None, Outcome, bool], None] | None = settle

    def settle(self, now: float, outcome: Outcome, *, slow: bool = False) -> None:
        """`slow`: answered, but later than the engine in health would (`LatencyTrip`)."""
        self._once(now, outcome, slow)

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._once(None, Outcome.IGNORED, False)

    def _once(self, now: float | None, outcome: Outcome, slow: bool) -> None:
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(now, outcome, slow)
