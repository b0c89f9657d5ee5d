"""An engine that mixes callers' pages never becomes ready; with the plugin it does."""

from __future__ import annotations

from tests.cluster.kube import Namespace
from tests.cluster.release import START_S, Release

# The release that mixes pages as it is shipped, and its own kind of checkpoint.
LEAKY = {
    "engine.version": "0.32.0",
    "model.path": "/models/tiny-hunyuan-vl",
}


def test_an_engine_without_the_plugin_is_never_ready(namespace: Namespace) -> None:
    release = Release(namespace)
    without = {"engine.extraEnv[0].name": "VLLM_PLUGINS", "engine.extraEnv[0].value": "none"}
    release.begin_install(LEAKY | without)

    def reason() -> str:
        (pod,) = release.pods()
        said = release.readiness(pod)
        return said if "isolation" in said else ""

    said = release.namespace.wait_for("the self-test has failed", reason, START_S)
    assert "another" in said, said
    assert not release.ready(1)

    release.upgrade(LEAKY)
    assert release.ready(1)
