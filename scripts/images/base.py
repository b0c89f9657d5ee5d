"""A slim Python base image out of Debian packages, for building where no registry is reached.

It stands in for `python:3.11-slim`: packages are unpacked, none of their scripts run, and busybox
is the shell.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from scripts.cluster.machine import cache
from scripts.images import buildah

PACKAGES = (
    "base-files", "busybox-static", "ca-certificates", "libbz2-1.0", "libc6", "libcrypt1",
    "libexpat1", "libffi8", "libgcc-s1", "libgomp1", "liblzma5", "libncursesw6",
    "libpython3.11-minimal", "libpython3.11-stdlib",
    "libreadline8", "libsqlite3-0", "libssl3", "libstdc++6", "libtinfo6",
    "libuuid1", "media-types", "netbase", "python3-pip-whl", "python3-setuptools-whl", "python3.11",
    "python3.11-minimal", "python3.11-venv", "tzdata", "zlib1g",
)  # fmt: skip
UNWANTED = ("usr/share/doc", "usr/share/man", "usr/share/lintian", "usr/share/locale",
            "usr/share/bug", "usr/share/pixmaps", "usr/share/applications")  # fmt: skip
ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
}


def provide() -> str:
    """The image's name; it is built where the local store does not have it."""
    name = f"localhost/python-slim:{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]}"
    if not buildah.exists(name):
        _build(name, cache("images") / "base")
    return name


def _build(name: str, folder: Path) -> None:
    """`folder` keeps the downloaded packages."""
    root = unpack(PACKAGES, folder)
    _complete(root)
    buildah.build(name, root, Path(__file__).with_name("base.Dockerfile"))
    shutil.rmtree(root)


def unpack(names: Sequence[str], folder: Path) -> Path:
    """Unpack Debian packages, without their documentation, into a folder below `folder`."""
    root = folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for package in _download(names, folder / "packages"):
        subprocess.run(("dpkg-deb", "--extract", str(package), str(root)), check=True)
    for path in UNWANTED:
        shutil.rmtree(root / path, ignore_errors=True)
    return root


def _download(names: Sequence[str], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.deb"):
        old.unlink()
    # As the owner of the folder: apt's own unprivileged user could not write to it.
    command = ("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *names)
    subprocess.run(command, cwd=folder, check=True)
    return sorted(folder.glob("*.deb"))


def _complete(root: Path) -> None:
    """What the packages' scripts would have done."""
    for name in ("tmp", "proc", "sys", "dev", "root", "run"):
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for link in ("python3", "python"):
        (root / "usr" / "bin" / link).symlink_to("python3.11")
    busybox = next(root.glob("*bin/busybox"))
    applets = subprocess.run((busybox, "--list"), check=True, capture_output=True, text=True)
    for applet in applets.stdout.split():
        if not any((root / place / applet).exists() for place in ("bin", "sbin", "usr/bin")):
            (root / "bin" / applet).symlink_to("busybox")
    for path, text in ACCOUNTS.items():
        (root / path).write_text(text)
    certificates = sorted((root / "usr/share/ca-certificates/mozilla").glob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(path.read_text() for path in certificates))
