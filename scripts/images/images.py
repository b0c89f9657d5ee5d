#!/usr/bin/env python3
"""The project's images, built without a registry by buildah, or by Docker where it works.

examples:
  images.py build                          hunyuan-ocr and hunyuan-ocr:dev-slim
  images.py build hunyuan-ocr-engine-cpu-0.28.0   the engine of the cluster tests
  images.py push registry.example/team     tags and pushes the first two

An image whose inputs have not changed is not built again. Each lies as an archive in the cache,
for `cluster.py load`, `ctr images import` and `docker load`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # run as a file, from anywhere

from scripts.cluster.machine import MachineError, cache  # noqa: E402
from scripts.engine import install as engine  # noqa: E402
from scripts.engine import serve  # noqa: E402
from scripts.images import base, buildah  # noqa: E402

CACHE = cache("images")
ENGINES = {
    f"hunyuan-ocr-engine-cpu-{version}": (version, model)
    for version, model in serve.DEFAULT_MODEL.items()
}
ENGINE_IMAGE = ROOT / "tests" / "cluster" / "engine-image"
ENGINE_PACKAGES = ("libnuma1", "libsmartcols1", "util-linux")  # beyond what the base image has
MODELS = ROOT / "tests" / "fixtures" / "models"
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
        digest = hashlib.sha256(repr(self.options).encode())
        for path in _files((*self.inputs, self.dockerfile, Path(base.__file__))):
            digest.update(path.name.encode() + path.read_bytes())
        repository, _, tag = self.name.rpartition("/")[2].partition(":")
        return CACHE / f"{repository}-{tag}-{digest.hexdigest()[:12]}.tar"


def _service(tag: str, kind: str) -> Image:
    inputs = ("pyproject.toml", "README.md", "requirements", "service", ".dockerignore")
    return Image(
        f"localhost/hunyuan-ocr:{tag}",
        ROOT,
        ROOT / "service" / "Dockerfile",
        tuple(ROOT / name for name in inputs),
        ("--build-arg", f"ENGINE={kind}"),
    )


def _engine(version: str, model: str) -> Image:
    environment = engine.environment(engine.default_cache(), version)
    return Image(
        f"localhost/hunyuan-ocr-engine-cpu:v{version}",
        environment,
        ENGINE_IMAGE / "Dockerfile",
        (ENGINE_IMAGE, MODELS / model, environment / engine.MARKER),
        (
            *("--build-arg", f"VERSION={version}"),
            *("--build-context", f"model={MODELS / model}"),
            *("--build-arg", f"MODEL={model}"),
            *("--build-context", f"packages={CACHE / 'engine' / 'root'}"),
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


def build(image: Image) -> Path:
    """Bring the image's archive up to date and return it."""
    archive = image.archive()
    if archive.exists():
        return archive
    base_name = _base()
    options = ["--build-arg", f"BASE={base_name}", *image.options]
    for name in INDEX_VARIABLES:
        if name in os.environ:
            options += ["--build-arg", f"{name}={os.environ[name]}"]
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


def push(registry: str, names: Iterable[str]) -> None:
    """Push the images to a registry that `buildah login` or `docker login` opened."""
    for name in names:
        image = catalogue()[name]
        build(image)
        target = f"{registry.rstrip('/')}/{image.name.removeprefix('localhost/')}"
        subprocess.run(("buildah", "push", image.name, target), check=True)


def _base() -> str:
    text = Path(base.__file__).read_bytes()
    name = f"localhost/python-slim:{hashlib.sha256(text).hexdigest()[:12]}"
    if not buildah.exists(name):
        base.build(name, CACHE / "base")
    return name


def _revision() -> str:
    command = ("git", "-C", str(ROOT), "rev-parse", "HEAD")
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _files(paths: Iterable[Path]) -> list[Path]:
    found = set()
    for path in paths:
        inside = path.rglob("*") if path.is_dir() else (path,)
        found |= {file for file in inside if file.is_file() and "__pycache__" not in file.parts}
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    builder, pusher = commands.add_parser("build"), commands.add_parser("push")
    pusher.add_argument("registry")
    service = ["hunyuan-ocr", "hunyuan-ocr-slim"]
    builder.add_argument("names", nargs="*", metavar="NAME", default=service)
    arguments = parser.parse_args()
    try:
        if arguments.command == "push":
            push(arguments.registry, service)
            return
        if unknown := set(arguments.names) - set(catalogue()):
            parser.error(f"no image {', '.join(unknown)}; there are {', '.join(catalogue())}")
        for name in arguments.names:
            began, image = time.monotonic(), catalogue()[name]
            if name in ENGINES:
                engine.install(engine.default_cache(), ENGINES[name][0])
                if not image.archive().exists():
                    base.unpack(ENGINE_PACKAGES, CACHE / "engine")
            archive = build(image)
            size, took_s = archive.stat().st_size / 1e6, time.monotonic() - began
            print(f"{image.name}  {size:.0f} MB  {took_s:.0f} s  {archive}")
    except (MachineError, engine.InstallError) as error:
        sys.exit(f"images: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"images: {error}")


if __name__ == "__main__":
    main()
