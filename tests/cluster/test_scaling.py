"""The number of pods follows the offered load, by KEDA and by the HPA alone."""

from __future__ import annotations

import pytest

from tests.cluster.kube import Namespace
from tests.cluster.scaling import MOST, Autoscaler, scaled

pytestmark = pytest.mark.long


@pytest.mark.parametrize("autoscaler", ["hpa", "keda"])
def test_pods_follow_the_load(namespace: Namespace, autoscaler: Autoscaler) -> None:
    seen = scaled(namespace, autoscaler, steady_s=60, report=print)
    assert seen.most == MOST
    assert seen.steady == (MOST,)
    assert seen.blind == (MOST,)
    assert seen.totals.lost == 0, seen.lost
    assert seen.totals.answered > seen.totals.refused
