"""The same cluster by kind, where Docker works. No test runs on it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from scripts.cluster.options import Options, set_gpus

NAME = "hyocr"


def up(options: Options, report: Callable[[str], None]) -> None:
    roles = ["control-plane", *["worker"] * (options.nodes - 1)]
    config = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": role} for role in roles],
    }
    command = ("kind", "create", "cluster", "--name", NAME, "--wait", "90s", "--config", "-")
    subprocess.run(command, check=True, text=True, input=json.dumps(config))
    for number, node in enumerate(_nodes(), start=1):
        set_gpus(kubectl, node, options.gpus.get(f"n{number}", 0), taint=options.gpu_taint)
    report("nodes are Ready")


def down() -> None:
    subprocess.run(("kind", "delete", "cluster", "--name", NAME), check=True)


def load(archives: list[Path]) -> None:
    for archive in archives:
        command = ("kind", "load", "image-archive", "--name", NAME, str(archive))
        subprocess.run(command, check=True)


def status() -> str:
    return kubectl("get", "nodes", "-o", "wide")


def stop_node(name: str) -> None:
    subprocess.run(("docker", "kill", name), check=True)


def start_node(name: str) -> None:
    subprocess.run(("docker", "start", name), check=True)
    kubectl("wait", "--for=condition=Ready", f"node/{name}", "--timeout=90s")


def command(words: list[str]) -> list[str]:
    return words


def network() -> None:
    """The machine reaches kind's nodes as it is."""


def variables() -> dict[str, str]:
    return {}


def kubectl(*arguments: str) -> str:
    words = ("kubectl", "--context", f"kind-{NAME}", *arguments)
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def _nodes() -> list[str]:
    words = ("kind", "get", "nodes", "--name", NAME)
    return sorted(subprocess.run(words, check=True, capture_output=True, text=True).stdout.split())
