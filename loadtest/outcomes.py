"""What came of one request, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    ANSWERED = "answered"
    REFUSED = "refused"  # 429 or 503: not now
    FAILED = "failed"  # another status, or an answer without the text that was asked for
    BROKEN = "broken"  # the connection ended before the answer was whole
    UNREACHABLE = "unreachable"  # there was no connection
    TIMED_OUT = "timed out"
    UNSENT = "unsent"  # the generator had as many in flight as it may


@dataclass(frozen=True, slots=True)
class Reply:
    """How a request ended. `code` is the server's own word for a refusal or failure, else the
    status; `first_at` is when the first of the text came, by the loop's clock.
    """

    outcome: Outcome
    code: str = ""
    first_at: float | None = None
    retry_after_s: float | None = None
    degraded: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """One request; times in seconds since its step began. `due` is when it was to be sent, which
    may be before it could be: what a caller waits is counted from there.
    """

    due: float
    sent: float | None
    ended: float
    reply: Reply

    @property
    def answered(self) -> bool:
        return self.reply.outcome is Outcome.ANSWERED

    @property
    def latency_s(self) -> float:
        return self.ended - self.due

    @property
    def lag_s(self) -> float:
        """How late it was sent; all of its time where it never was."""
        return (self.ended if self.sent is None else self.sent) - self.due
