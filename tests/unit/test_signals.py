"""The signals' rules, at an API server in memory; tests/cluster has them at a real one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hunyuan_ocr import sandbox
from hunyuan_ocr.cluster.api import ClusterApi, ClusterError, Conflict, Lease, NotFound, Pod
from hunyuan_ocr.cluster.gate import DURATION_S, RENEW_PERIOD_S, Cause, Gate, cap, lease_name
from hunyuan_ocr.cluster.signals import (
    CAUSES,
    Change,
    ClusterSignals,
    Event,
    EventBudget,
    event_of,
)

HOT = CAUSES["thermal"]


@dataclass
class Server:
    """What the API server knows. `down`: nobody reaches it."""

    replicas: int
    leases: int
    now_s: float = 0.0
    down: bool = False
    held: dict[str, Lease] = field(default_factory=dict)
    serving: dict[str, bool] = field(default_factory=dict)
    versions: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        for number in range(self.leases):
            self.write(lease_name("ocr", number), "")

    def write(self, name: str, holder: str) -> Lease:
        self.held[name] = Lease(name, holder, str(next(self.versions)))
        return self.held[name]

    @property
    def out(self) -> int:
        return list(self.serving.values()).count(False)

    def gate(self, pod: str, percent: int = 34) -> Gate:
        return Gate(
            PodsView(self, Pod("ocr", pod, pod)),
            pod=pod,
            deployment="ocr",
            max_unready_percent=percent,
            clock=lambda: self.now_s,
        )


@dataclass
class PodsView:
    """The API in the name of one pod."""

    server: Server
    pod: Pod
    events: list[str] = field(default_factory=list)

    def replicas(self, deployment: str) -> int:
        self._reach()
        return self.server.replicas

    def lease(self, name: str) -> Lease:
        self._reach()
        if name not in self.server.held:
            raise NotFound(name)
        return self.server.held[name]

    def take(self, lease: Lease, duration_s: int) -> Lease:
        return self._write(lease, self.pod.name)

    def give_back(self, lease: Lease) -> None:
        assert self.server.serving[self.pod.name]
        self._write(lease, "")

    def set_condition(self, serving: bool, reason: str, message: str) -> None:
        self._reach()
        holders = [lease.holder for lease in self.server.held.values()]
        assert serving or self.pod.name in holders
        self.server.serving[self.pod.name] = serving

    def add_event(self, reason: str, note: str, *, warning: bool) -> None:
        self._reach()
        self.events.append(reason)

    def close(self) -> None:
        self.events.append("closed the API")

    def _write(self, lease: Lease, holder: str) -> Lease:
        self._reach()
        if self.server.held[lease.name] != lease:
            raise Conflict(lease.name)
        return self.server.write(lease.name, holder)

    def _reach(self) -> None:
        if self.server.down:
            raise ClusterError("the API server is not reached")


@given(replicas=st.integers(0, 10_000), percent=st.integers(1, 100))
def test_the_cap_is_rounded_down_and_leaves_a_pod(replicas: int, percent: int) -> None:
    allowed = cap(replicas, percent)
    assert allowed * 100 <= replicas * percent
    assert allowed == 0 if replicas < 2 else allowed < replicas


@dataclass
class Fleet:
    """Eight pods at a server whose cap is two."""

    server: Server = field(default_factory=lambda: Server(replicas=8, leases=2))
    wanted: dict[int, Cause | None] = field(default_factory=lambda: dict.fromkeys(range(8)))

    def __post_init__(self) -> None:
        self.gates = {number: self.server.gate(f"pod-{number}") for number in range(8)}

    def want(self, number: int) -> None:
        self.wanted[number] = HOT
        self.step(number)

    def recover(self, number: int) -> None:
        self.wanted[number] = None
        self.step(number)

    def die(self, number: int) -> None:
        """A deleted pod is no pod that is out."""
        self.gates.pop(number, None)
        self.server.serving.pop(f"pod-{number}", None)

    def cut_off(self, periods: int) -> None:
        self.server.down = True
        self.live(periods)
        self.server.down = False

    def live(self, periods: int) -> None:
        for _ in range(periods):
            self.server.now_s += RENEW_PERIOD_S
            for number in range(8):
                self.step(number)

    def step(self, number: int) -> None:
        if number in self.gates:
            with suppress(ClusterError):
                self.gates[number].step(self.wanted[number])
        assert self.server.out <= 2


@given(
    actions=st.lists(
        st.tuples(st.sampled_from(["want", "want", "recover", "die", "cut_off", "live"]),
                  st.integers(0, 7)),
        max_size=60,
    )
)  # fmt: skip
def test_never_more_pods_are_out_than_the_cap(actions: list[tuple[str, int]]) -> None:
    """Whatever pods want, in whatever order they act, die and are cut off together."""
    fleet = Fleet()
    for action, number in actions:
        getattr(fleet, action)(number)
    for number in range(8):
        fleet.wanted[number] = None
    fleet.live(1)
    assert fleet.server.out == 0


def test_one_replica_never_goes_out() -> None:
    server = Server(replicas=1, leases=3)
    gate = server.gate("only", percent=100)
    gate.step(None)
    gate.step(HOT)
    assert server.serving == {"only": True}


def test_a_lease_moves_on_only_after_its_time_without_a_renewal() -> None:
    server = Server(replicas=4, leases=1)
    first, second = server.gate("first"), server.gate("second")
    for gate in (first, second):
        gate.step(HOT)
    for _ in range(20):  # for as long as the first renews
        server.now_s += RENEW_PERIOD_S
        first.step(HOT)
        second.step(HOT)
        assert first.out
        assert not second.out
    del server.serving["first"]  # it is killed
    died_s = server.now_s
    while not second.out and server.now_s < died_s + 60:
        server.now_s += 1
        second.step(HOT)
    assert second.out
    assert DURATION_S < server.now_s - died_s < DURATION_S + 5


def test_after_an_outage_holders_may_renew_before_others_take() -> None:
    server = Server(replicas=4, leases=1)
    first, second = server.gate("first"), server.gate("second")
    for gate in (first, second):
        gate.step(HOT)
    server.down = True
    for _ in range(100):
        server.now_s += RENEW_PERIOD_S
        for gate in (first, second):
            with pytest.raises(ClusterError):
                gate.step(HOT)
    server.down = False
    second.step(HOT)
    first.step(HOT)
    assert (first.out, second.out) == (True, False)


def test_what_a_pod_saw_before_it_recovered_counts_no_more() -> None:
    """The holder may have been cut off meanwhile, when this pod did not look."""
    server = Server(replicas=4, leases=1)
    first, second = server.gate("first"), server.gate("second")
    first.step(HOT)
    for cause in (HOT, None):
        second.step(cause)
    server.now_s += 10 * DURATION_S
    second.step(HOT)
    assert (first.out, second.out) == (True, False)


def test_fewer_replicas_bring_pods_back() -> None:
    server = Server(replicas=9, leases=3)
    gates = [server.gate(f"pod-{number}") for number in range(9)]
    for gate in gates:
        gate.step(HOT)
    assert server.out == 3
    server.replicas = 4
    for gate in gates:
        gate.step(HOT)
    assert server.out == 1


def test_flapping_makes_no_storm_and_says_what_is_missing() -> None:
    now_s = 0.0
    budget = EventBudget(lambda: now_s)
    sent: list[Event] = []
    for _ in range(3600):
        now_s += 1
        if event := budget.spend(event_of("opened", {"latency"})):
            sent.append(event)
    assert len(sent) == pytest.approx(12 + 60, abs=1)
    assert sent[0].note == "The breaker refuses pages: latency."
    assert sent[-1].note.endswith(" 59 changes before were not told.")


@contextmanager
def signals_of(server: Server) -> Iterator[tuple[ClusterSignals, PodsView]]:
    view = PodsView(server, Pod("ocr", "mine", "mine"))
    signals = ClusterSignals(lambda: view, deployment="ocr", max_unready_percent=50)
    signals.start()
    yield signals, view


def until(condition: Callable[[], object], within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("reasons", "serves"),
    [({"thermal"}, False), ({"latency", "engine_hung"}, False), ({"latency", "error"}, True)],
)
async def test_only_some_reasons_take_a_pod_out(reasons: Collection[str], serves: bool) -> None:
    server = Server(replicas=2, leases=1)
    with signals_of(server) as (signals, view):
        signals.tell("opened", reasons)
        until(lambda: "BreakerOpened" in view.events)
        assert server.serving == {"mine": serves}
        signals.tell("half_open")
        until(lambda: "BreakerHalfOpen" in view.events)
        assert server.serving == {"mine": True}
        assert not any(lease.holder for lease in server.held.values())
        await signals.close()


async def test_a_pod_that_leaves_gives_its_lease_back() -> None:
    server = Server(replicas=2, leases=1)
    with signals_of(server) as (signals, _):
        signals.tell("opened", {"thermal"})
        until(lambda: server.out == 1)
        signals.leave()
        until(lambda: server.out == 0 and not server.held["ocr-unready-0"].holder)
        changes: tuple[Change, ...] = ("opened", "closed", "opened")
        for change in changes:
            signals.tell(change, {"thermal"})
        await signals.close()
        assert server.out == 0


async def test_without_a_token_all_is_skipped_with_one_line(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def connect() -> ClusterApi:
        return ClusterApi(Pod("ocr", "mine", "mine"), tmp_path, {})

    signals = ClusterSignals(connect, deployment="ocr", max_unready_percent=50)
    with caplog.at_level(logging.WARNING):
        signals.start()
        began_s = time.monotonic()
        for _ in range(1000):
            signals.tell("opened", {"thermal"})
        assert time.monotonic() - began_s < 0.2
        until(lambda: "skipped" in caplog.text)
        await signals.close()
    skipped = [record for record in caplog.records if "skipped" in record.message]
    assert len(skipped) == 1
    assert "no credentials" in skipped[0].__dict__["fields"]["why"]


async def test_a_kernel_that_cannot_hide_the_token_is_told_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "available", lambda: False)
    with signals_of(Server(replicas=1, leases=0)) as (signals, _):
        await signals.close()
    assert any("could read the pod's token" in record.message for record in caplog.records)
