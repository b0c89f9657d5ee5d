"""The cluster's programs: unpacked from a folder of checked archives, or built from source with Go.

They lie in a folder named by everything that decides what they are, so another version never
meets an old one. A program appears there whole, by a rename.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from scripts.cluster.machine import MachineError

SOURCES = Path(__file__).with_name("go")
KUBERNETES = "v1.35.4"
COMPONENTS = (
    "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet",
    "kubectl",
)  # fmt: skip
# program -> the module's folder below SOURCES and the package in it
PROGRAMS = {
    "hyperkube": ("kube", "."),
    "etcd": ("etcd", "go.etcd.io/etcd/server/v3"),
    "coredns": ("coredns", "."),
    "kube-router": ("kube-router", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"),
    "prometheus": ("prometheus", "github.com/prometheus/prometheus/cmd/prometheus"),
    "prometheus-adapter": ("prometheus-adapter", "sigs.k8s.io/prometheus-adapter/cmd/adapter"),
    "keda-operator": ("keda", "github.com/kedacore/keda/v2/cmd/operator"),
    "keda-adapter": ("keda", "github.com/kedacore/keda/v2/cmd/adapter"),
}
# Prometheus finds what to read in Kubernetes alone; other modules know no such tag.
TAGS = "remove_all_sd,enable_kubernetes_sd"


def provide(programs: Sequence[str], cache: Path, archives: Path) -> Path:
    """The folder that holds `programs`, complete; `archives` may be absent.

    Raises:
        MachineError: an archive is not what its list of sums says, or there is neither an archive
            nor Go.
    """
    folder = cache / _fingerprint()
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs:
        if not (folder / program).exists():
            draft = folder / f".{program}.draft"
            if not _unpack(program, archives, draft):
                _build(program, draft)
            draft.chmod(0o755)
            draft.replace(folder / program)
    for component in COMPONENTS:
        if not (folder / component).is_symlink():
            (folder / component).symlink_to("hyperkube")
    return folder


def _fingerprint() -> str:
    go = shutil.which("go")
    version = subprocess.run([go, "version"], capture_output=True).stdout if go else b"no Go"
    digest = hashlib.sha256(version)
    for path in (Path(__file__), *sorted(SOURCES.glob("*/*"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _unpack(program: str, archives: Path, target: Path) -> bool:
    """False when there is no such archive."""
    archive, sums = archives / f"{program}.xz", archives / "SHA256SUMS"
    if not (archive.exists() and sums.exists()):
        return False
    expected = {name: digest for digest, name in map(str.split, sums.read_text().splitlines())}
    with archive.open("rb") as packed:
        found = hashlib.file_digest(packed, "sha256").hexdigest()
        if found != expected.get(archive.name):
            raise MachineError(f"{archive} does not match {sums}")
        packed.seek(0)
        with lzma.open(packed) as plain, target.open("wb") as output:
            shutil.copyfileobj(plain, output, 1 << 20)
    return True


def _build(program: str, target: Path) -> None:
    if shutil.which("go") is None:
        raise MachineError(f"{program} must be built: install Go, or name a folder of archives")
    print(f"building {program} from source; the whole of Kubernetes takes a quarter of an hour")
    module, package = PROGRAMS[program]
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
    }
    flags = ("-trimpath", "-buildvcs=false", f"-ldflags=-s -w {_version_flags()}")
    command = ("go", "build", *flags, f"-tags={TAGS}", "-o", str(target), package)
    subprocess.run(command, check=True, cwd=SOURCES / module, env=environment)


def _version_flags() -> str:
    """Kubernetes refuses some of its own work when it does not know its version."""
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    values = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
    return " ".join(
        f"-X {package}.{name}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in values.items()
    )
