"""What the chart grants to a pod's token; tests/cluster has it at a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from hunyuan_ocr.cluster.api import CONDITION
from hunyuan_ocr.cluster.gate import cap, lease_name
from hunyuan_ocr.sandbox import CREDENTIALS
from scripts.chart.render import case as case_of
from scripts.chart.render import containers, only, values_files
from tests.chart.conftest import Render
from tests.chart.test_manifests import golden

KINDS = {
    "Lease",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
OFF = [case_of(path) for path in values_files() if case_of(path) != "signals"]


@pytest.mark.parametrize("name", OFF)
def test_without_signals_there_is_nothing_of_them(name: str) -> None:
    documents = golden(name)
    assert not KINDS & {document["kind"] for document in documents}
    pod = only(documents, "Deployment")["spec"]["template"]["spec"]
    assert "readinessGates" not in pod
    assert "serviceAccountToken" not in str(documents)


def test_the_token_is_in_the_service_alone() -> None:
    pod = only(golden("signals"), "Deployment")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["readinessGates"] == [{"conditionType": CONDITION}]
    mounts = {
        name: [mount for mount in container["volumeMounts"] if mount["name"] == "token"]
        for name, container in containers(pod).items()
    }
    assert mounts.pop("hunyuan-ocr") == [
        {"name": "token", "mountPath": str(CREDENTIALS), "readOnly": True}
    ]
    assert not any(mounts.values())
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "token")
    token, _ = volume["projected"]["sources"]
    assert token == {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}


@pytest.mark.parametrize("percent", [1, 25, 34, 50])
@pytest.mark.parametrize("replicas", [0, 1, 2, 3, 6, 100])
def test_there_are_as_many_leases_as_pods_may_be_out(
    replicas: int, percent: int, render: Render
) -> None:
    changes: dict[str, Any] = {"replicas": replicas, "signals": {"maxUnreadyPercent": percent}}
    documents = render("signals", changes)
    leases = [d["metadata"]["name"] for d in documents if d["kind"] == "Lease"]
    assert leases == [lease_name("hunyuan-ocr", n) for n in range(cap(replicas, percent))]
    granted = [
        rule["resourceNames"]
        for rule in only(documents, "Role")["rules"]
        if rule["resources"] == ["leases"]
    ]
    assert granted == ([leases] if leases else [])  # no names would mean every lease


def test_two_releases_do_not_meet(render: Render) -> None:
    """What lies outside the namespace carries its name, and limits this release's account alone."""
    changes = {"fullnameOverride": "billing", "serviceAccount": {"name": "reader"}}
    documents = render("signals", changes)
    policy = only(documents, "ValidatingAdmissionPolicy")
    binding = only(documents, "ValidatingAdmissionPolicyBinding")
    assert policy["metadata"]["name"] == "billing-signals.ocr"
    assert binding["spec"] == {"policyName": "billing-signals.ocr", "validationActions": ["Deny"]}
    (caller,) = policy["spec"]["matchConditions"]
    account = "system:serviceaccount:ocr:reader"
    assert caller["expression"] == f"request.userInfo.username == '{account}'"
    (subject,) = only(documents, "RoleBinding")["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": "reader", "namespace": "ocr"}
