"""A heat wave in the pods: sensors of vLLM's container are a library in place of NVML."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest

from tests.cluster.events import steady_load
from tests.cluster.kube import Namespace, is_true
from tests.cluster.release import NAME, Release, two_replicas
from tests.gpu.fake_card import script

pytestmark = pytest.mark.long

SENSORS = "/tmp/sensors"
SETS: Mapping[str, object] = {
    "signals.enabled": True,
    "signals.maxUnreadyPercent": 50,
    "engine.extraEnv[0].name": "LD_LIBRARY_PATH",
    "engine.extraEnv[0].value": "/opt/card",
    "engine.extraEnv[1].name": "FAKE_NVML",
    "engine.extraEnv[1].value": SENSORS,
}
_SOFTWARE, _HARDWARE = 0x20, 0x40  # NVML's reasons for a lower clock, of heat
# A card that counts no throttled time: its reasons decide.
_COUNTERS = ("throttled_software_thermal", "throttled_hardware_thermal", "throttled_power_brake")
_ASK_METRICS = (
    "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9180/metrics').read().decode())"
)


def test_a_hot_card_is_spared_then_rested_then_used_again(namespace: Namespace) -> None:
    with two_replicas(namespace, SETS) as release:
        hot, cool = (str(pod["metadata"]["name"]) for pod in release.pods())
        for name in (hot, cool):
            _sensors(namespace, name)
        _wait_for(release, hot, "temperature_celsius", lambda value: value == 40)
        with steady_load(release.url) as load:
            _sensors(namespace, hot, temperature=82, margin=0, reasons=_SOFTWARE, sm_clock=1000)
            _wait_for(release, hot, "limit_factor_ratio", lambda value: value < 0.9)
            assert _ready(release) == {hot, cool}
            _sensors(namespace, hot, temperature=90, margin=-6, reasons=_HARDWARE, sm_clock=300)
            namespace.wait_for("the hot pod is out", lambda: _ready(release) == {cool}, 60)
            # No second one may leave while the first is out.
            _sensors(namespace, cool, temperature=90, margin=-6, reasons=_HARDWARE, sm_clock=300)
            namespace.wait_for("both are open", lambda: len(_open(release)) == 2, 60)
            assert _ready(release) == {cool}
            for name in (hot, cool):
                _sensors(namespace, name)
            namespace.wait_for("both serve", lambda: _ready(release) == {hot, cool}, 120)
            namespace.wait_for("both are closed", lambda: not _open(release), 120)
    lost = [outcome.detail for outcome in load.outcomes if outcome.kind == "lost"]
    assert not lost
    told = _events(namespace, hot)
    assert {"Derated", "BreakerOpened", "BreakerHalfOpen", "BreakerClosed"} <= told


def _sensors(namespace: Namespace, pod: str, **changes: object) -> None:
    """A card at rest with `changes`, from now on."""
    words = ("sh", "-c", f"cat > {SENSORS}.new && mv {SENSORS}.new {SENSORS}")
    card = script(**dict.fromkeys(_COUNTERS), **changes)
    namespace.exec(pod, *words, container="vllm", stdin=card)


def _metrics(release: Release, pod: str) -> str:
    return release.namespace.exec(pod, "python3", "-c", _ASK_METRICS, container=NAME)


def _wait_for(release: Release, pod: str, name: str, right: Callable[[float], bool]) -> None:
    def seen() -> bool:
        found = re.search(rf"^hunyuan_ocr_gpu_{name} (\S+)$", _metrics(release, pod), re.MULTILINE)
        return found is not None and right(float(found[1]))

    release.namespace.wait_for(f"{name} of {pod}", seen, 60)


def _ready(release: Release) -> set[str]:
    return {pod["metadata"]["name"] for pod in release.pods() if is_true(pod, "Ready")}


def _open(release: Release) -> set[str]:
    closed = 'hunyuan_ocr_breaker_state{hunyuan_ocr_breaker_state="closed"} 1.0'
    names = (str(pod["metadata"]["name"]) for pod in release.pods())
    return {name for name in names if closed not in _metrics(release, name)}


def _events(namespace: Namespace, pod: str) -> set[str]:
    events = namespace.get("events")["items"]
    return {event["reason"] for event in events if event["involvedObject"]["name"] == pod}
