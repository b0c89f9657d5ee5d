"""The readiness gate: a pod takes itself out of its Service only while it holds a Lease.

There are as many Leases as pods may be out at once, so no count of pods is ever needed that could
be wrong by the time it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from hunyuan_ocr.cluster.api import ClusterError, Conflict, Lease, NotFound

# Renewed every RENEW_PERIOD_S, so that two renewals may fail. Others wait for DURATION_S.
DURATION_S = 15
RENEW_PERIOD_S = 4.0


class GateApi(Protocol):
    """What the gate needs of `ClusterApi`."""

    def replicas(self, deployment: str) -> int: ...
    def lease(self, name: str) -> Lease: ...
    def take(self, lease: Lease, duration_s: int) -> Lease: ...
    def give_back(self, lease: Lease) -> None: ...
    def set_condition(self, serving: bool, reason: str, message: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a pod should be out of its Service: a word in CamelCase and a sentence."""

    reason: str
    message: str


def cap(replicas: int, max_unready_percent: int) -> int:
    """How many of so many pods may be out at once, rounded down; never all of them."""
    return max(0, min(replicas * max_unready_percent // 100, replicas - 1))


def lease_name(deployment: str, number: int) -> str:
    return f"{deployment}-unready-{number}"


class Gate:
    """The gate of the pod called `pod`. Blocking; for one thread.

    The condition is written False only after a Lease was taken, and True before it is given back.
    """

    def __init__(
        self,
        api: GateApi,
        *,
        pod: str,
        deployment: str,
        max_unready_percent: int,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._pod = pod
        self._deployment = deployment
        self._max_unready_percent = max_unready_percent
        self._clock = clock
        self._held: tuple[int, Lease] | None = None
        # When a version of a foreign lease was first seen, by the lease's name. The holder's and
        # this pod's clocks are never compared.
        self._seen: dict[str, tuple[str, float]] = {}
        # What the condition says, None where that is not known.
        self._written: Cause | bool | None = None

    @property
    def out(self) -> bool:
        """Whether the pod is out of its Service, as far as is known."""
        return isinstance(self._written, Cause)

    def step(self, cause: Cause | None) -> None:
        """Bring the cluster nearer to `cause` (None: the pod serves); to be called again within
        RENEW_PERIOD_S. Raises ClusterError, after which the next call goes on from there.
        """
        began_s = self._clock()
        try:
            if cause is not None and self._hold():
                # A write that is late must not fall into the time of the lease's next holder.
                if self._clock() - began_s < DURATION_S / 3:
                    self._write(cause)
                return
            self._write(True)
            self._give_back()
        except ClusterError:
            # A holder may have been as cut off as this pod: it gets the whole time to renew.
            self._seen.clear()
            raise
        if cause is None:
            self._seen.clear()

    def _hold(self) -> bool:
        allowed = cap(self._api.replicas(self._deployment), self._max_unready_percent)
        if self._held is not None:
            number, _ = self._held
            if number >= allowed:
                return False
            if self._take(number):
                return True
            self._held = None
        return any(self._take(number) for number in range(allowed))

    def _take(self, number: int) -> bool:
        name = lease_name(self._deployment, number)
        try:
            lease = self._api.lease(name)
            if lease.holder not in ("", self._pod) and not self._expired(lease):
                return False
            self._held = number, self._api.take(lease, DURATION_S)
        except (NotFound, Conflict):
            return False
        return True

    def _expired(self, lease: Lease) -> bool:
        now_s = self._clock()
        version, since_s = self._seen.get(lease.name, ("", now_s))
        if version != lease.version:
            since_s = now_s
            self._seen[lease.name] = lease.version, since_s
        return now_s - since_s > DURATION_S

    def _give_back(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            with suppress(NotFound, Conflict):  # it is another's by now
                self._api.give_back(held[1])

    def _write(self, wanted: Cause | bool) -> None:
        if wanted == self._written:
            return
        self._written = None
        if isinstance(wanted, Cause):
            self._api.set_condition(False, wanted.reason, wanted.message)
        else:
            self._api.set_condition(True, "Serving", "The breaker does not hold the pod back.")
        self._written = wanted
