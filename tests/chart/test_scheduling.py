"""Where pods go, and how much of a GPU each has."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from scripts.chart.render import Manifest, containers, only
from tests.chart.conftest import Render


def pod(documents: list[Manifest]) -> Manifest:
    spec: Manifest = only(documents, "Deployment")["spec"]["template"]["spec"]
    return spec


def expressions(spec: Manifest) -> dict[tuple[str, str], list[str]]:
    affinity = spec["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return {(e["key"], e["operator"]): e["values"] for e in term["matchExpressions"]}


def gpu_arguments(documents: list[Manifest]) -> tuple[str, str]:
    """Share of the GPU's memory, and GPUs."""
    arguments: list[str] = containers(pod(documents))["vllm"]["args"]
    after = dict(pairwise(arguments))
    return after["--gpu-memory-utilization"], after["--tensor-parallel-size"]


def test_a_card_with_the_same_name_and_48_gb_is_not_taken(render: Render) -> None:
    assert expressions(pod(render("rtx-4090-d"))) == {
        ("nvidia.com/gpu.product", "In"): ["NVIDIA-GeForce-RTX-4090-D"],
        # Gt and Lt leave their bound out: 23000 to 26000.
        ("nvidia.com/gpu.memory", "Gt"): ["22999"],
        ("nvidia.com/gpu.memory", "Lt"): ["26001"],
    }


@pytest.mark.parametrize(
    ("replicas", "share"), [(1, "0.9"), (2, "0.45"), (3, "0.3"), (4, "0.225"), (7, "0.128")]
)
def test_pods_that_share_a_card_share_its_memory(render: Render, replicas: int, share: str) -> None:
    documents = render("rtx-4090-d", {"gpu": {"sharing": {"replicas": replicas}}})
    product = expressions(pod(documents))["nvidia.com/gpu.product", "In"]
    assert product == ["NVIDIA-GeForce-RTX-4090-D" + ("-SHARED" if replicas > 1 else "")]
    assert gpu_arguments(documents) == (share, "1")
    limits = containers(pod(documents))["vllm"]["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == "1"


def test_two_gpus_split_the_model(render: Render) -> None:
    documents = render("air-gapped")
    assert gpu_arguments(documents) == ("0.9", "2")
    assert containers(pod(documents))["vllm"]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert pod(documents)["runtimeClassName"] == "nvidia"


def test_without_labels_the_users_affinity_stands(render: Render) -> None:
    wanted: dict[str, Any] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}
    }
    changes: dict[str, Any] = {"affinity": wanted, "gpu": {"requireLabels": False}}
    assert pod(render("rtx-4090-d", changes))["affinity"] == wanted
    changes["gpu"]["requireLabels"] = True
    assert pod(render("rtx-4090-d", changes))["affinity"].keys() == wanted.keys() | {"nodeAffinity"}


@pytest.mark.parametrize("case", ["cpu-trial", "embedded"])
def test_without_a_gpu_any_node_will_do(render: Render, case: str) -> None:
    spec = pod(render(case))
    assert not {"affinity", "tolerations", "nodeSelector", "runtimeClassName"} & spec.keys()
    for container in containers(spec).values():
        assert "nvidia.com/gpu" not in container["resources"]["limits"]


def test_pods_are_spread_and_a_given_constraint_selects_them(render: Render) -> None:
    documents = render("every-option")
    selector = only(documents, "Deployment")["spec"]["selector"]
    assert pod(documents)["topologySpreadConstraints"] == [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }
    ]


def test_a_constraint_with_a_selector_keeps_it(render: Render) -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"team": "a"}},
    }
    documents = render("embedded", {"topologySpreadConstraints": [constraint]})
    assert pod(documents)["topologySpreadConstraints"] == [constraint]


def test_the_claim_is_filled_where_the_server_can_follow(render: Render) -> None:
    changes = {"nodeSelector": {"pool": "gpu"}, "tolerations": [{"operator": "Exists"}]}
    documents = render("shared-claim", changes)
    job = only(documents, "Job")["spec"]["template"]["spec"]
    for key in ("affinity", "nodeSelector", "tolerations"):
        assert job[key] == pod(documents)[key]
