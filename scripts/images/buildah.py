"""Building images without a daemon and without a registry: buildah, and archives in a folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts.cluster.machine import require_programs

PACKAGES = {"buildah": "buildah", "runc": "runc"}


def build(name: str, context: Path, dockerfile: Path, *options: str) -> None:
    """Build `dockerfile` into the local store under `name`."""
    require_programs(PACKAGES)
    # chroot: making namespaces may not be allowed in a container.
    _buildah("build", "--quiet", "--layers", "--isolation", "chroot", "--pull-never", "--tag", name,
             "--file", str(dockerfile), *options, str(context))  # fmt: skip


def exists(name: str) -> bool:
    require_programs(PACKAGES)
    command = ("buildah", "inspect", "--type", "image", name)
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def save(name: str, archive: Path) -> None:
    """Write the image as one archive that `docker load` and `ctr images import` take."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    draft = archive.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    _buildah("push", "--quiet", name, f"docker-archive:{draft}:{name}")
    draft.replace(archive)


def _buildah(*arguments: str) -> None:
    subprocess.run(
        ("buildah", "--log-level", "error", *arguments), check=True, stdout=subprocess.DEVNULL
    )
