"""Which answers came so late that the engine must be at fault.

What is late is decided by the reference model (`cost.Reference`), which knows how large the page
was and what was in flight beside it: a burst of large pages is slow and not late. Only the
reference may be asked, never a model that follows the last seconds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LatencyOptions:
    """Measured / reference above which an answer, or its first token, is late. Both must also be
    `least_excess_s` above the reference: a pause that no caller notices is no fault."""

    slow_ratio: float = 2.0
    first_token_ratio: float = 3.0
    least_excess_s: float = 0.25


class LatencyTrip:
    """Judges answers; `Breaker` counts them."""

    def __init__(self, options: LatencyOptions) -> None:
        self._options = options

    def is_slow(self, measured_s: float, reference_s: float, slowdown: float = 1.0) -> bool:
        """Whether a whole answer came late.

        `slowdown` (1 or more) is what the card's heat explains (`thermal.Assessment`): heat has a
        policy of its own, and an engine that reads slowly on a hot card is not at fault.
        """
        return self._late(measured_s, reference_s * slowdown, self._options.slow_ratio)

    def is_first_token_slow(
        self, measured_s: float, reference_s: float, slowdown: float = 1.0
    ) -> bool:
        """Whether the first token came late.

        `reference_s` is what the same page would take if it had no text (`Work` without output).
        """
        return self._late(measured_s, reference_s * slowdown, self._options.first_token_ratio)

    def _late(self, measured_s: float, expected_s: float, ratio: float) -> bool:
        excess_s = measured_s - expected_s
        return measured_s > ratio * expected_s and excess_s > self._options.least_excess_s
