"""The signals of twenty pods at a real API server, with the rights that the chart gives them."""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from hunyuan_ocr.cluster.api import CONDITION, ClusterApi, Pod
from hunyuan_ocr.cluster.gate import DURATION_S
from hunyuan_ocr.cluster.signals import ClusterSignals
from scripts.chart.render import CHART, Manifest, manifests, template
from tests.cluster.apiserver import ApiServer, running_api_server

NAME = "hunyuan-ocr"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running_api_server(tmp_path_factory.mktemp("api")) as server:
        yield server


@dataclass
class Watcher:
    """How many pods were out of their Service, at each change of any pod."""

    out: set[str] = field(default_factory=set)
    most: int = 0

    def read(self, lines: IO[str]) -> None:
        for line in lines:
            pod = json.loads(line)["object"]
            conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", ())}
            change = self.out.add if conditions.get(CONDITION) == "False" else self.out.discard
            change(pod["metadata"]["name"])
            self.most = max(self.most, len(self.out))


@dataclass
class Release:
    """The chart's objects in a namespace of their own, and pods that nobody runs."""

    server: ApiServer
    namespace: str
    folder: Path
    pods: list[Pod]
    tokens: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """What a container finds in its own."""
        return {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.server.port),
        }

    def signals(self, pod: Pod) -> ClusterSignals:
        def connect() -> ClusterApi:
            return ClusterApi(pod, self.folder / pod.name, self.environment)

        return ClusterSignals(connect, deployment=NAME, max_unready_percent=34)

    def path(self, *parts: str, group: str = "") -> str:
        root = f"/apis/{group}" if group else "/api/v1"
        return "/".join((root, "namespaces", self.namespace, *parts))

    def scale(self, replicas: int) -> None:
        """As the Deployment's controller would report it."""
        path = self.path("deployments", NAME, group="apps/v1")
        self.server.send("PATCH", path, {"spec": {"replicas": replicas}}, content_type=MERGE)
        status = {"status": {"replicas": replicas}}
        answer, _ = self.server.send("PATCH", f"{path}/status", status, content_type=MERGE)
        assert answer == 200

    def condition(self, pod: Pod) -> str | None:
        _, found = self.server.send("GET", self.path("pods", pod.name))
        conditions = {c["type"]: c["status"] for c in found["status"].get("conditions", ())}
        return conditions.get(CONDITION)

    def out(self) -> list[str]:
        return [pod.name for pod in self.pods if self.condition(pod) == "False"]

    def holders(self) -> list[str]:
        _, found = self.server.send("GET", self.path("leases", group="coordination.k8s.io/v1"))
        holders = (lease.get("spec", {}).get("holderIdentity") for lease in found["items"])
        return sorted(filter(None, holders))

    def events(self) -> list[tuple[str, str]]:
        _, found = self.server.send("GET", self.path("events"))
        return [(e["involvedObject"]["name"], e["reason"]) for e in found["items"]]

    def patch_status(
        self, caller: Pod, pod: Pod, body: Any, content_type: str = STRATEGIC
    ) -> tuple[int, str]:
        token = self.tokens[caller.name]
        path = self.path("pods", pod.name, "status")
        status, answer = self.server.send(
            "PATCH", path, body, token=token, content_type=content_type
        )
        return status, answer.get("message", "")


def pod_of(namespace: str, name: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "ocr"}},
        "spec": {
            "serviceAccountName": NAME,
            "automountServiceAccountToken": False,
            "readinessGates": [{"conditionType": CONDITION}],
            "containers": [{"name": "main", "image": "none"}],
        },
    }


Install = Callable[[int], Release]


@pytest.fixture
def install(server: ApiServer, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Install]:
    """Install the chart with so many replicas, in a namespace named after the test."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())
    namespace = words.removeprefix("test-")[:40].strip("-")

    def install(replicas: int) -> Release:
        values = CHART / "ci" / "signals-values.yaml"
        options = [
            f"--namespace={namespace}",
            f"--set=replicas={replicas},signals.maxUnreadyPercent=34",
        ]
        objects = [m for m in manifests(template(values, options=options)) if m["kind"] != "Pod"]
        names = [f"ocr-{number}" for number in range(replicas)]
        server.kubectl("create", "namespace", namespace)
        items = objects + [pod_of(namespace, name) for name in names]
        everything = {"apiVersion": "v1", "kind": "List", "items": items}
        server.kubectl("apply", "-f", "-", stdin=json.dumps(everything))
        release = Release(server, namespace, tmp_path, [], {})
        for name in names:
            admit(release, name)
        release.scale(replicas)
        until("the policy is in force", lambda: policy_works(release))
        return release

    yield install
    server.kubectl("delete", "validatingadmissionpolicy", f"{NAME}-signals.{namespace}")


def admit(release: Release, name: str) -> None:
    """Give a pod its token, bound to it as the kubelet's are."""
    _, found = release.server.send("GET", release.path("pods", name))
    pod = Pod(release.namespace, name, found["metadata"]["uid"])
    bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod.uid}
    spec = {"boundObjectRef": bound, "expirationSeconds": 600}
    path = release.path("serviceaccounts", NAME, "token")
    status, answer = release.server.send("POST", path, {"spec": spec})
    assert status == 201, answer
    folder = release.folder / name
    folder.mkdir()
    (folder / "token").write_text(answer["status"]["token"])
    (folder / "ca.crt").write_bytes(release.server.authority.read_bytes())
    release.pods.append(pod)
    release.tokens[name] = answer["status"]["token"]


def condition(kind: str, status: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": status}]}}


def policy_works(release: Release) -> bool:
    """An API server takes seconds to learn of a policy; until then this changes something."""
    pod = release.pods[0]
    probe = {"type": "Probe", "status": "True", "message": str(time.monotonic())}
    return release.patch_status(pod, pod, {"status": {"conditions": [probe]}})[0] == 422


def until(what: str, true: Callable[[], object], within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        time.sleep(0.1)


async def soon(what: str, true: Callable[[], object], within_s: float = 30) -> None:
    await asyncio.to_thread(until, what, true, within_s)


async def test_racing_pods_never_exceed_the_cap_and_all_come_back(install: Install) -> None:
    release = install(20)
    cap = 6  # a third of 20
    fleet = [release.signals(pod) for pod in release.pods]
    watcher = Watcher()
    with release.server.watch(release.path("pods")) as lines:
        reader = threading.Thread(target=watcher.read, args=(lines,))
        reader.start()
        for signals in fleet:
            signals.start()
        for signals in fleet:
            signals.tell("opened", {"thermal"})
        await soon("as many are out as may be", lambda: len(watcher.out) == cap)
        for _ in range(40):  # they flap, each less often than Events are held back
            signals = random.choice(fleet)
            signals.tell(random.choice(("opened", "half_open")), {"thermal"})
            await asyncio.sleep(0.1)
        for signals in fleet:
            signals.tell("opened", {"thermal"})
        await soon("as many are out as may be", lambda: len(watcher.out) == cap)
        release.scale(7)  # a third of 7
        await soon("fewer replicas, fewer out", lambda: len(watcher.out) == 2)
        for signals in fleet:
            signals.tell("half_open")
            signals.tell("closed")
        await soon("all are back", lambda: not watcher.out)
        await asyncio.gather(*(signals.close() for signals in fleet))
    reader.join(5)
    assert watcher.most == cap
    assert [release.condition(pod) for pod in release.pods] == ["True"] * 20
    assert release.holders() == []
    told = release.events()
    for pod in release.pods:
        reasons = {reason for name, reason in told if name == pod.name}
        assert {"BreakerOpened", "BreakerHalfOpen", "BreakerClosed"} <= reasons


def hold_for_ever(pod: Pod, credentials: Path, environment: dict[str, str]) -> None:
    def connect() -> ClusterApi:
        return ClusterApi(pod, credentials, environment)

    signals = ClusterSignals(connect, deployment=NAME, max_unready_percent=34)
    signals.start()
    signals.tell("opened", {"engine_hung"})
    time.sleep(600)


async def test_the_lease_of_a_killed_pod_moves_on_after_its_time(install: Install) -> None:
    release = install(3)
    first, second, _ = release.pods
    holder = multiprocessing.get_context("spawn").Process(
        target=hold_for_ever,
        args=(first, release.folder / first.name, release.environment),
    )
    holder.start()
    await soon("the first is out", lambda: release.out() == [first.name])
    heir = release.signals(second)
    heir.start()
    heir.tell("opened", {"thermal"})
    await asyncio.sleep(DURATION_S + 5)
    assert release.out() == [first.name]  # while the first lives
    holder.kill()
    killed_s = time.monotonic()
    holder.join()
    # A call that fails, as on a machine that is too busy, starts the heir's waiting anew.
    await soon("the lease moved on", lambda: release.holders() == [second.name], 120)
    # The last renewal was up to one period before the kill.
    assert time.monotonic() - killed_s > DURATION_S - 5
    await soon("the second is out", lambda: second.name in release.out())
    await heir.close()


async def test_an_api_server_that_is_down_is_waited_for(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    release = install(3)
    hot, hung, _ = release.pods
    fleet = {pod: release.signals(pod) for pod in release.pods}
    for signals in fleet.values():
        signals.start()
    fleet[hot].tell("opened", {"thermal"})
    await soon("one is out", lambda: release.out() == [hot.name])
    await soon("all have said so", lambda: None not in map(release.condition, release.pods))
    with caplog.at_level(logging.WARNING, "hunyuan_ocr.cluster"):
        release.server.stop()
        began_s = time.monotonic()
        fleet[hot].tell("half_open")
        fleet[hung].tell("opened", {"engine_hung"})
        assert time.monotonic() - began_s < 0.05
        await asyncio.sleep(10)
    skipped = [record for record in caplog.records if "skipped" in record.message]
    assert len(skipped) == 2  # once each; the third has nothing to say
    release.server.start()
    await soon("the other is out", lambda: release.out() == [hung.name])
    assert release.holders() == [hung.name]
    release.server.stop()
    began_s = time.monotonic()
    await asyncio.gather(*(signals.close() for signals in fleet.values()))
    assert time.monotonic() - began_s < 7
    release.server.start()


async def test_one_replica_stays_in_its_service(install: Install) -> None:
    release = install(1)
    (pod,) = release.pods
    signals = release.signals(pod)
    signals.start()
    signals.tell("opened", {"thermal"})
    await soon("it is told", lambda: (pod.name, "BreakerOpened") in release.events())
    assert release.condition(pod) == "True"
    await signals.close()


def test_the_token_is_good_for_nothing_else(install: Install) -> None:
    release = install(6)
    token = release.tokens["ocr-0"]
    answer = release.server.kubectl(
        "auth", "can-i", "--list", f"--namespace={release.namespace}", f"--token={token}"
    )
    rows = [re.split(r"\s{2,}|(?<=\])\s(?=\[)", line.strip()) for line in answer.splitlines()[1:]]
    # What the API server grants to every account there is.
    common = ("selfsubject", "[/")
    own = [row for row in rows if not row[0].startswith(common) and row[0] != ""]
    own = [row for row in own if not row[0].startswith("[")]
    assert sorted(map(tuple, own)) == [
        ("deployments.apps/scale", "[]", "[hunyuan-ocr]", "[get]"),
        ("events.events.k8s.io", "[]", "[]", "[create]"),
        ("leases.coordination.k8s.io", "[]", "[hunyuan-ocr-unready-0]", "[get patch]"),
        ("leases.coordination.k8s.io", "[]", "[hunyuan-ocr-unready-1]", "[get patch]"),
        ("pods/status", "[]", "[]", "[patch]"),
    ]


def test_a_pod_may_write_its_own_condition_and_nothing_else(install: Install) -> None:
    release = install(2)
    mine, other = release.pods
    admin = release.path("pods", mine.name, "status")
    release.server.send("PATCH", admin, condition("Ready", "False"), content_type=STRATEGIC)
    assert release.patch_status(mine, mine, condition(CONDITION, "False")) == (200, "")
    assert release.patch_status(mine, mine, condition(CONDITION, "True")) == (200, "")
    refused: list[tuple[Pod, Any, str, str]] = [
        (other, condition(CONDITION, "False"), STRATEGIC, "its own status only"),
        (mine, condition("Ready", "True"), STRATEGIC, f"the condition {CONDITION} only"),
        (mine, condition("example.com/other", "True"), STRATEGIC, "only"),
        (mine, {"status": {"conditions": []}}, MERGE, f"the condition {CONDITION} only"),
        (mine, {"status": {"phase": "Failed"}}, MERGE, "its conditions only"),
        (mine, {"status": {"message": "x"}}, MERGE, "its conditions only"),
        (mine, {"metadata": {"labels": {"app": "x"}}}, MERGE, "may not write its metadata"),
        (mine, {"metadata": {"labels": None}}, MERGE, "may not write its metadata"),
        (mine, {"metadata": {"annotations": {"a": "b"}}}, MERGE, "may not write its metadata"),
    ]
    for pod, body, kind, sentence in refused:
        status, message = release.patch_status(mine, pod, body, kind)
        assert status == 422, (body, message)
        assert sentence in message, body
