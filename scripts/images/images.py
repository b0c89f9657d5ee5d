#!/usr/bin/env python3
"""The project's images, built by buildah out of Debian 12 packages: no daemon, no registry.

examples:
  images.py build                          hunyuan-ocr:dev and hunyuan-ocr:dev-slim
  images.py build hunyuan-ocr-engine-cpu-0.28.0   the engine of the cluster tests
  images.py push registry.example/team     tagged with the version; with names: those

An image whose inputs have not changed is not built again. Each lies as an archive in the cache,
for `cluster.py load`, `ctr images import` and `docker load`. Elsewhere `docker build` makes the
service's image: see the top of service/Dockerfile.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # run as a file, from anywhere

from scripts.cluster.machine import MachineError, cache, require_programs  # noqa: E402
from scripts.engine import install as engine  # noqa: E402
from scripts.engine import serve  # noqa: E402
from scripts.images import base, buildah  # noqa: E402

CACHE = cache("images")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
ENGINES = {
    f"hunyuan-ocr-engine-cpu-{version}": (version, model)
    for version, model in serve.DEFAULT_MODEL.items()
}
ENGINE_IMAGE = ROOT / "tests" / "cluster" / "engine-image"
ENGINE_PACKAGES = ("libnuma1", "libsmartcols1", "util-linux")  # beyond what the base image has
MODELS = ROOT / "tests" / "fixtures" / "models"
CARD = ROOT / "tests" / "gpu" / "fake_nvml.c"
# Where a package index is not reached directly, the caller's environment says how; see pip and uv.
INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "PIP_CERT", "SSL_CERT_FILE")


@dataclass(frozen=True, slots=True)
class Image:
    """`inputs` are the files and folders that decide what it holds; `options` are buildah's."""

    name: str
    context: Path
    dockerfile: Path
    inputs: tuple[Path, ...]
    options: tuple[str, ...] = ()

    def archive(self) -> Path:
        """Where it is kept; the same for every checkout that would build the same."""
        digest = hashlib.sha256(_portable(repr(self.options)))
        files = _files((*self.inputs, self.dockerfile, Path(base.__file__)))
        for name, path in sorted((_portable(str(path)), path) for path in files):
            digest.update(name + b"\0" + path.read_bytes())
        repository, _, tag = self.name.rpartition("/")[2].partition(":")
        return CACHE / f"{repository}-{tag}-{digest.hexdigest()[:12]}.tar"


def _service(tag: str, kind: str) -> Image:
    inputs = ("pyproject.toml", "README.md", "requirements", "service", "loadtest", ".dockerignore")
    return Image(
        f"localhost/hunyuan-ocr:{tag}",
        ROOT,
        ROOT / "service" / "Dockerfile",
        tuple(ROOT / name for name in inputs),
        ("--build-arg", f"ENGINE={kind}", "--build-arg", f"VERSION={VERSION}"),
    )


def _engine(version: str, model: str) -> Image:
    environment = engine.environment(engine.default_cache(), version)
    return Image(
        f"localhost/hunyuan-ocr-engine-cpu:v{version}",
        environment,
        ENGINE_IMAGE / "Dockerfile",
        (ENGINE_IMAGE, MODELS / model, environment / engine.MARKER, CARD),
        (
            *("--build-arg", f"VERSION={version}"),
            *("--build-context", f"model={MODELS / model}"),
            *("--build-arg", f"MODEL={model}"),
            *("--build-context", f"packages={CACHE / 'engine' / 'root'}"),
            *("--build-context", f"card={CACHE / 'card'}"),
            *("--ignorefile", str(ENGINE_IMAGE / "ignore")),
        ),
    )


def catalogue() -> dict[str, Image]:
    """Every image by the name it has on the command line."""
    return {
        "hunyuan-ocr": _service("dev", "embedded"),
        "hunyuan-ocr-slim": _service("dev-slim", "vllm"),
        **{name: _engine(*which) for name, which in ENGINES.items()},
    }


def build(name: str) -> Path:
    """Bring the archive of an image up to date and return it; `name` is one of the catalogue."""
    if name in ENGINES:
        engine.install(engine.default_cache(), ENGINES[name][0])
    image = catalogue()[name]
    archive = image.archive()
    if archive.exists():
        return archive
    if name in ENGINES:
        base.unpack(ENGINE_PACKAGES, CACHE / "engine")
        _compile_card(CACHE / "card")
    base_name = base.provide()
    options = ["--build-arg", f"BASE={base_name}", *image.options]
    for variable in INDEX_VARIABLES:
        if variable in os.environ:
            options += ["--build-arg", f"{variable}={os.environ[variable]}"]
    if certificates := os.environ.get("SSL_CERT_FILE"):
        options += ["--volume", f"{certificates}:{certificates}:ro"]
    if revision := _revision():
        options += ["--build-arg", f"REVISION={revision}"]
    buildah.build(image.name, image.context, image.dockerfile, *options)
    buildah.save(image.name, archive)
    for old in CACHE.glob(f"{archive.name.rpartition('-')[0]}-????????????.tar"):
        if old != archive:
            old.unlink()
    return archive


def _compile_card(folder: Path) -> None:
    """A library in place of NVML, whose sensors a test sets."""
    require_programs({"gcc": "gcc", "/usr/include/stdio.h": "libc6-dev"})
    folder.mkdir(parents=True, exist_ok=True)
    library = str(folder / "libnvidia-ml.so.1")
    subprocess.run(("gcc", "-shared", "-fPIC", "-O1", "-o", library, str(CARD)), check=True)


def push(registry: str, names: Iterable[str]) -> None:
    """Push the images to a registry that `buildah login` or `docker login` opened.

    Their tag there is the version, as the chart asks for it.
    """
    for name in names:
        build(name)
        image = catalogue()[name]
        target = f"{registry.rstrip('/')}/{pushed(image)}"
        subprocess.run(("buildah", "push", image.name, target), check=True)


def pushed(image: Image) -> str:
    """Name and tag in a registry: hunyuan-ocr:dev-slim becomes hunyuan-ocr:0.1.0-slim."""
    return image.name.removeprefix("localhost/").replace(":dev", f":{VERSION}")


def _revision() -> str:
    command = ("git", "-C", str(ROOT), "rev-parse", "HEAD")
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _portable(text: str) -> bytes:
    """Without the checkout's own place."""
    return text.replace(str(ROOT), "").encode()


def _files(paths: Iterable[Path]) -> set[Path]:
    found = set()
    for path in paths:
        inside = path.rglob("*") if path.is_dir() else (path,)
        found |= {file for file in inside if file.is_file() and "__pycache__" not in file.parts}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    builder = commands.add_parser("build", help="bring images up to date")
    pusher = commands.add_parser("push", help="push images, tagged with the version")
    pusher.add_argument("registry", help="for example registry.example.com/ocr")
    for command in (builder, pusher):
        command.add_argument(
            "names", nargs="*", metavar="NAME", default=["hunyuan-ocr", "hunyuan-ocr-slim"],
            help=f"default: the service's; all: {', '.join(catalogue())}",
        )  # fmt: skip
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(catalogue()):
        parser.error(f"no image {', '.join(unknown)}; there are {', '.join(catalogue())}")
    try:
        if arguments.command == "push":
            push(arguments.registry, arguments.names)
            return
        for name in arguments.names:
            began = time.monotonic()
            archive = build(name)
            size, took_s = archive.stat().st_size / 1e6, time.monotonic() - began
            print(f"{catalogue()[name].name}  {size:.0f} MB  {took_s:.0f} s  {archive}")
    except (MachineError, engine.InstallError) as error:
        sys.exit(f"images: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"images: {error}")


if __name__ == "__main__":
    main()
