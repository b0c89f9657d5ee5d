#!/usr/bin/env python3
"""A real Kubernetes cluster on this machine, for the tests: kind where it and Docker are, else our
own.

examples:
  cluster.py up --nodes 2 --gpu n1=1,n2=1 --network-policy
  cluster.py load IMAGE.tar…            into every node
  cluster.py status
  cluster.py in kubectl get pods -A     any command, in the cluster's network, with KUBECONFIG
  cluster.py gpu n1=4 | stop-node n2 | start-node n2
  cluster.py down
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # run as a file, from anywhere

from scripts.cluster import kind, local  # noqa: E402
from scripts.cluster.machine import MachineError, docker_works  # noqa: E402
from scripts.cluster.nodes import NodeError  # noqa: E402
from scripts.cluster.options import Options, parse_gpus, set_gpus  # noqa: E402


def _reporter() -> Callable[[str], None]:
    began = time.monotonic()
    return lambda text: print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)


def backend() -> ModuleType:
    """What makes the cluster here; both modules have the same functions."""
    return kind if shutil.which("kind") and docker_works() else local


def up(arguments: argparse.Namespace) -> None:
    options = Options(
        arguments.nodes,
        parse_gpus(arguments.gpu),
        arguments.gpu_taint,
        arguments.network_policy,
        arguments.archives,
    )
    backend().up(options, _reporter())


def inside(arguments: argparse.Namespace) -> None:
    words = backend().command(arguments.command)
    os.execvpe(words[0], words, os.environ | backend().variables())


def gpu(arguments: argparse.Namespace) -> None:
    for node, count in parse_gpus(arguments.gpus).items():
        set_gpus(backend().kubectl, node, count)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, action: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        command = commands.add_parser(name)
        command.set_defaults(action=action)
        return command

    start = add("up", up)
    start.add_argument("--nodes", type=int, choices=range(1, 10), default=1)
    start.add_argument("--gpu", default="", metavar="n1=1,…", help="pretended GPUs by node")
    start.add_argument("--gpu-taint", action="store_true", help="taint nodes as NVIDIA's do")
    start.add_argument("--network-policy", action="store_true", help="enforce NetworkPolicy")
    start.add_argument(
        "--archives",
        type=Path,
        default=Path("/nonexistent"),
        help="folder of prepared programs with SHA256SUMS; else built with Go",
    )
    loading = add("load", lambda arguments: backend().load(arguments.archives))
    loading.add_argument("archives", type=Path, nargs="+", metavar="IMAGE.tar")
    add("in", inside).add_argument("command", nargs=argparse.REMAINDER)
    add("gpu", gpu).add_argument("gpus", metavar="n1=1,…")
    add("stop-node", lambda arguments: backend().stop_node(arguments.node)).add_argument("node")
    add("start-node", lambda arguments: backend().start_node(arguments.node)).add_argument("node")
    add("down", lambda _: backend().down())
    add("status", lambda _: print(backend().status(), end=""))
    add("kubeconfig", lambda _: print(backend().variables()["KUBECONFIG"]))
    arguments = parser.parse_args()
    try:
        arguments.action(arguments)
    except (MachineError, NodeError, ValueError) as error:
        sys.exit(f"cluster: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"cluster: {error}\n{(error.stderr or '')!s}".rstrip())


if __name__ == "__main__":
    main()
