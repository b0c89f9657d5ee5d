"""Images unpacked once for all nodes and for every later start.

A containerd without any containers imports archives into a store that stays in the cache. A node
begins with a copy of that store made of hard links: layers and blobs are never written to, only
the two databases are, and those are really copied. A second node costs no disk and a second start
no time.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.cluster.machine import MachineError

CONFIGURATION = """\
version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{state}/containerd.sock"
"""
RECORD = "images.json"
START_WITHIN_S = 20.0


def provide(folder: Path, archives: list[Path]) -> None:
    """Import the archives whose image is not in the store yet."""
    folder.mkdir(parents=True, exist_ok=True)
    if not missing(folder, archives):
        return
    try:
        _import(folder, archives)
    except subprocess.CalledProcessError:
        # An import that was broken off can leave layers without their parents.
        shutil.rmtree(folder)
        folder.mkdir()
        _import(folder, archives)


def _import(folder: Path, archives: list[Path]) -> None:
    with _containerd(folder / "containerd") as socket:
        load(folder, socket, archives)


def load(folder: Path, socket: Path, archives: list[Path]) -> None:
    """Import what is missing through the running containerd whose record lies in `folder`."""
    for archive in missing(folder, archives):
        # Where the kubelet looks for images.
        command = ("ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", archive)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        tag, image = identity(archive)
        (folder / RECORD).write_text(json.dumps(_record(folder) | {tag: image}, indent=1))


def missing(folder: Path, archives: list[Path]) -> list[Path]:
    """The archives whose tag stands for another image, or none, according to the record."""
    record = _record(folder)
    found = {archive: identity(archive) for archive in archives}
    return [archive for archive, (tag, image) in found.items() if record.get(tag) != image]


def _record(folder: Path) -> dict[str, str]:
    """Tag -> digest of the image's configuration."""
    path = folder / RECORD
    return dict(json.loads(path.read_text())) if path.exists() else {}


def identity(archive: Path) -> tuple[str, str]:
    """(tag, digest of the configuration) of the one image in an archive."""
    with tarfile.open(archive) as content:
        manifest = content.extractfile("manifest.json")
        assert manifest is not None  # it is a file in every archive that docker or buildah saves
        (image,) = json.load(manifest)
    return image["RepoTags"][0], image["Config"]


def copy(folder: Path, target: Path) -> None:
    """Give a node's new folder the store's images."""
    target.mkdir(parents=True)
    for name in ("containerd", RECORD):
        subprocess.run(("cp", "--archive", "--link", folder / name, target), check=True)
    for database in (target / "containerd").rglob("*.db"):
        _own(database)
    _own(target / RECORD)


def _own(path: Path) -> None:
    """Replace a hard link by a copy."""
    draft = path.with_suffix(".draft")
    shutil.copyfile(path, draft)
    draft.replace(path)


@contextmanager
def _containerd(root: Path) -> Iterator[Path]:
    """Run a containerd over the store; yields its socket."""
    with tempfile.TemporaryDirectory() as state:
        configuration, socket = Path(state, "config.toml"), Path(state, "containerd.sock")
        configuration.write_text(CONFIGURATION.format(root=root, state=state))
        with Path(state, "log").open("wb") as log:
            daemon = subprocess.Popen(
                ("containerd", "--config", configuration), stdout=log, stderr=log
            )
        try:
            deadline = time.monotonic() + START_WITHIN_S
            while not answers(socket):
                if daemon.poll() is not None or time.monotonic() > deadline:
                    raise MachineError(
                        f"containerd does not start: {Path(state, 'log').read_text()}"
                    )
                time.sleep(0.1)
            yield socket
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()


def answers(socket: Path) -> bool:
    command = ("ctr", "--address", socket, "version")
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
