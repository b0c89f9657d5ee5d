"""What callers of two replicas notice of each fault."""

from __future__ import annotations

import pytest

from tests.cluster.events import Noticed, all_noticed
from tests.cluster.faults import FAULTS, Fault, replicas_with_everything
from tests.cluster.kube import Namespace

pytestmark = pytest.mark.long

# A page that is sent so long after the process was killed was not in its hands.
_NOTICED_AFTER_S = 2.0


def test_nothing_is_lost_but_what_a_killed_process_held(namespace: Namespace) -> None:
    """One release for all faults, since two real engines take minutes to start."""
    with replicas_with_everything(namespace) as site:
        events = [fault.event(site) for fault in FAULTS]
        for fault, noticed in zip(FAULTS, all_noticed(site.release, events), strict=True):
            _judge(fault, noticed)


def _judge(fault: Fault, noticed: Noticed) -> None:
    if fault.kind == "graceful":
        assert not noticed.lost, noticed
    elif fault.name != "node loss":  # nobody tells callers that a node is gone
        sent_s = [lost.sent_s for lost in noticed.lost]
        # The kubelet looks at volumes now and then: when it ended the pod, only callers know.
        killed_s = min(sent_s, default=0.0) if fault.name == "compile cache full" else 0.0
        assert all(each <= killed_s + _NOTICED_AFTER_S for each in sent_s), noticed
    assert noticed.totals.answered > noticed.totals.refused, noticed
