"""An engine that mixes callers' pages never becomes ready; with the plugin it does."""

from __future__ import annotations

from tests.cluster.kube import Namespace
from tests.cluster.release import NAME, START_S, Release

# The release that mixes pages as it is shipped, and its own kind of checkpoint; before it the
# smaller image of the service, which needs no CPU engine of its own.
LEAKY = {
    "image.tag": "dev-slim",
    "engine.version": "0.32.0",
    "model.path": "/models/tiny-hunyuan-vl",
}


def test_an_engine_without_the_plugin_is_never_ready(namespace: Namespace) -> None:
    """The chart refuses to leave the plugin out, so somebody else does it."""
    release = Release(namespace)
    release.begin_install(LEAKY)
    _set_plugins(namespace, "VLLM_PLUGINS=none")

    def reason() -> str:
        said = release.readiness(release.pods()[-1])
        return said if "isolation" in said and "running" not in said else ""

    said = namespace.wait_for("the self-test has failed", reason, START_S)
    assert "leaking" in said, said
    assert not release.ready(1)

    _set_plugins(namespace, "VLLM_PLUGINS-")
    release.wait_until_ready(1)


def _set_plugins(namespace: Namespace, change: str) -> None:
    namespace.kubectl("set", "env", f"deployment/{NAME}", "--containers=vllm", change)
