"""Stub CUDA libraries: PyPI's torch imports on a machine without CUDA and without 2 GB of wheels.

PyPI has no CPU build of torch for Linux. The CUDA build needs its nvidia-* wheels only to be
*loadable*: the dynamic linker wants every library that torch's shared objects name as NEEDED, with
the right SONAME and symbol versions. A stub in which every function returns 1 (an error status in
each of those interfaces) satisfies it; `torch.cuda.is_available()` is then False, as on any machine
without a driver. libcudart is not stubbed: its real wheel is 2 MB and pinned beside the others.

Run inside the environment to be completed: `python cuda_stubs.py [SITE_PACKAGES]`.
Needs gcc and readelf; x86-64 only.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tempfile
from collections import defaultdict
from pathlib import Path

STUBBED = frozenset(
    {
        "libcublas", "libcublasLt", "libcudnn", "libcufft", "libcufile", "libcupti", "libcurand",
        "libcusolver", "libcusparse", "libcusparseLt", "libnccl", "libnvrtc", "libnvshmem_host",
    }
)  # fmt: skip

# Libraries without symbol versions: their functions are told apart by how their names begin.
UNVERSIONED = {
    r"nccl[A-Z]": "libnccl",
    r"cusparseLt[A-Z]": "libcusparseLt",
    r"curand[A-Z]": "libcurand",
    r"cuFile[A-Z]": "libcufile",
    r"nvshmem": "libnvshmem_host",
    r"cupti[A-Z]": "libcupti",
    r"cudnn[A-Z]": "libcudnn",
    r"nvrtc[A-Z]": "libnvrtc",
}

Symbols = dict[str, str | None]  # function name -> symbol version, None: unversioned


def _readelf(flag: str, library: Path) -> str:
    command = ["readelf", flag, "-W", str(library)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _stem(soname: str) -> str:
    return soname.split(".", 1)[0]


def _needed(library: Path) -> set[str]:
    """The sonames among `library`'s NEEDED entries for which a stub is wanted."""
    names = re.findall(r"NEEDED.*\[(.+?)\]", _readelf("-d", library))
    return {name for name in names if _stem(name) in STUBBED}


def _version_owners(library: Path) -> dict[str, str]:
    """Symbol version -> the soname that defines it, from the version-needs section."""
    owners: dict[str, str] = {}
    soname = ""
    for line in _readelf("-V", library).splitlines():
        if match := re.search(r"File: (\S+)", line):
            soname = match[1]
        elif soname and (match := re.search(r"Name: (\S+)", line)):
            owners[match[1]] = soname
    return owners


def _undefined(library: Path) -> Symbols:
    pattern = re.compile(r"\sUND\s+(\S+?)(?:@@?(\S+))?(?:\s+\(\d+\))?\s*$")
    matches = map(pattern.search, _readelf("--dyn-syms", library).splitlines())
    return {match[1]: match[2] for match in matches if match}


def wanted(torch_lib: Path) -> dict[str, Symbols]:
    """soname -> the symbols that torch's libraries expect of it."""
    stubs: dict[str, Symbols] = defaultdict(dict)
    for library in sorted(torch_lib.glob("*.so")):
        needed, owners = _needed(library), _version_owners(library)
        by_stem = {_stem(soname): soname for soname in needed}
        for soname in needed:
            stubs[soname].update({})
        for name, version in _undefined(library).items():
            if version is not None:
                if owners.get(version) in needed:
                    stubs[owners[version]][name] = version
                continue
            for prefix, stem in UNVERSIONED.items():
                if stem in by_stem and re.match(prefix, name):
                    stubs[by_stem[stem]].setdefault(name, None)
    return stubs


def _assembly(symbols: Symbols) -> str:
    functions = (
        f".globl {name}\n.type {name},@function\n{name}: movl $1,%eax\n ret\n"
        for name in sorted(symbols)
    )
    return ".text\n" + "".join(functions) + '.section .note.GNU-stack,"",@progbits\n'


def _version_script(symbols: Symbols) -> str:
    by_version: dict[str, list[str]] = defaultdict(list)
    for name, version in sorted(symbols.items()):
        if version is not None:
            by_version[version].append(name)
    blocks = (f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names
              in sorted(by_version.items()))  # fmt: skip
    return "".join(blocks)


def build(soname: str, symbols: Symbols, target: Path) -> None:
    """Assemble one stub; the rename makes an interrupted run harmless."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        source, script, product = (
            Path(scratch, name) for name in ("stub.s", "stub.map", "stub.so")
        )
        source.write_text(_assembly(symbols))
        command = ["gcc", "-shared", "-nostdlib", "-o", str(product), str(source)]
        command.append(f"-Wl,-soname,{soname}")
        if versions := _version_script(symbols):
            script.write_text(versions)
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)
        product.replace(target)


def main(site_packages: Path) -> None:
    folder = site_packages / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True, exist_ok=True)
    for soname, symbols in sorted(wanted(site_packages / "torch" / "lib").items()):
        target = folder / soname
        if not target.exists():  # a real library, or a stub of an earlier run
            build(soname, symbols, target)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else sysconfig.get_paths()["platlib"]))
