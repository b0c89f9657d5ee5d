"""What a cluster is asked to be."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Kubectl = Callable[..., str]

GPU_TAINT = "nvidia.com/gpu=present:NoSchedule"
# What NVIDIA's GPU feature discovery says of the card that the chart is for.
GPU_LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-4090-D",
    "nvidia.com/gpu.memory": "24564",
}


@dataclass(frozen=True, slots=True)
class Options:
    """`gpus` is by node name; `archives` is a folder of prepared programs that may be absent."""

    nodes: int
    gpus: dict[str, int]
    gpu_taint: bool
    network_policy: bool
    archives: Path


def parse_gpus(text: str) -> dict[str, int]:
    """`n1=1,n2=4` as a dictionary; nothing is none.

    Raises:
        ValueError: it is not of that form.
    """
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    if any(not name or not count.isdigit() for name, _, count in pairs):
        raise ValueError(f"{text!r} is not of the form n1=1,n2=1")
    return {name: int(count) for name, _, count in pairs}


def set_gpus(kubectl: Kubectl, node: str, count: int, *, taint: bool = False) -> None:
    """Give a node so many GPUs, and the labels that NVIDIA's discovery sets; 0 takes them away."""
    kubectl("label", "node", node, "--overwrite", *gpu_labels(count))
    kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", gpu_patch(count))
    if taint:
        kubectl("taint", "node", node, "--overwrite", GPU_TAINT)


def gpu_labels(count: int) -> list[str]:
    """Arguments of `kubectl label` that set the labels for so many cards, or remove them for 0."""
    labels = GPU_LABELS | {"nvidia.com/gpu.count": str(count)}
    return [f"{name}={value}" if count else f"{name}-" for name, value in labels.items()]


def gpu_patch(count: int) -> str:
    """A merge patch of a node's status. An extended resource there is all that the scheduler and
    the kubelet count; no device plugin is needed to pretend."""
    return json.dumps({"status": {"capacity": {"nvidia.com/gpu": str(count) if count else None}}})
