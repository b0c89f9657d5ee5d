"""What the machine must have: Debian packages, root, and where this project keeps its caches."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path


class MachineError(Exception):
    """The machine lacks something that only its owner can add; the message says what."""


def cache(name: str) -> Path:
    """The project's cache folder of that name, outside the checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hunyuan-ocr" / name


def require_root(purpose: str) -> None:
    if os.geteuid() != 0:
        raise MachineError(f"{purpose} needs root: call it with sudo, or install Docker and kind")


def require_programs(packages: Mapping[str, str]) -> None:
    """Install the Debian packages whose program (or absolute path) is missing.

    Args:
        packages: program -> the package that brings it.
    """
    missing = sorted({package for program, package in packages.items() if not _present(program)})
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise MachineError(f"install these packages first: {' '.join(missing)}")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing)
    for command in (("apt-get", "update", "-qq"), install):
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def docker_works() -> bool:
    docker = shutil.which("docker")
    return (
        docker is not None and not subprocess.run([docker, "info"], capture_output=True).returncode
    )


def _present(program: str) -> bool:
    # sbin is not on everyone's PATH
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    return shutil.which(program, path=path) is not None or os.path.exists(program)
