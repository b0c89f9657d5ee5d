"""PromQL as text: what boards and rules have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scope:
    """Which series are meant, by `matchers`, and the `window` of a rate."""

    matchers: tuple[str, ...]
    window: str

    def series(self, name: str, *matchers: str) -> str:
        """A selector of the scope's series of that name."""
        all_matchers = ",".join((*self.matchers, *matchers))
        return f"{name}{{{all_matchers}}}" if all_matchers else name

    def rate(self, name: str, *matchers: str, by: Sequence[str] = ()) -> str:
        """A counter's growth a second, summed."""
        return total(f"rate({self.series(name, *matchers)}[{self.window}])", by)

    def quantile(self, q: float, histogram: str, *matchers: str, by: Sequence[str] = ()) -> str:
        """A quantile of a histogram, over the window."""
        buckets = self.rate(f"{histogram}_bucket", *matchers, by=("le", *by))
        return f"histogram_quantile({q}, {buckets})"

    def mean(self, histogram: str, *matchers: str, by: Sequence[str] = ()) -> str:
        """A histogram's mean, over the window."""
        amount = self.rate(f"{histogram}_sum", *matchers, by=by)
        return ratio(amount, self.rate(f"{histogram}_count", *matchers, by=by))


# Of a board: what its variables choose.
BOARD = Scope(
    ('namespace=~"$namespace"', 'job=~"$job"', 'instance=~"$instance"'), "$__rate_interval"
)
# Series that rules record are of all instances together.
RECORDED = Scope(BOARD.matchers[:2], BOARD.window)
# Series of exporters that tell of the chosen pods from outside.
PODS = Scope((BOARD.matchers[0], 'pod=~"$pod"'), BOARD.window)
# Of exporters that know no pods.
NAMESPACE = Scope(BOARD.matchers[:1], BOARD.window)


def by_pod(series: str) -> tuple[str, str]:
    """Each pod's highest value, and the legend that names it (an instance, outside Kubernetes)."""
    return f"max by (pod, instance) ({series})", "{{pod}} {{instance}}"


def total(expression: str, by: Sequence[str] = ()) -> str:
    return f"sum by ({', '.join(by)}) ({expression})" if by else f"sum({expression})"


def ratio(part: str, whole: str) -> str:
    """Nothing where there is no whole; 0 where there is a whole and no series of the part."""
    return f"({part} or 0 * ({whole})) / (({whole}) > 0)"
