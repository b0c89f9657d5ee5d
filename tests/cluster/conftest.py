"""A real cluster with the project's images, for the whole run; each test has its own namespace."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from scripts.chart import definitions
from scripts.chart.tools import tool
from tests.cluster import addons
from tests.cluster.kube import Cluster, Namespace
from tests.cluster.running import NotRunning, fresh_namespace, running_cluster


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    tool("helm3")
    addons_wanted = any(item.get_closest_marker("long") for item in request.session.items)
    if addons_wanted:
        definitions.provide()
    try:
        with running_cluster(addons.PROGRAMS if addons_wanted else ()) as cluster:
            yield cluster
    except NotRunning as error:
        pytest.exit(str(error), returncode=1)


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace named after the test, deleted after it."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    with fresh_namespace(cluster, words.removeprefix("test-")[:50].rstrip("-")) as namespace:
        yield namespace
