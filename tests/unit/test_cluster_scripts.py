"""The scripts of the test cluster and its images, as far as they are plain functions."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import re
import tarfile
from pathlib import Path

import pytest

from scripts.cluster import binaries, store
from scripts.cluster.machine import MachineError
from scripts.cluster.options import gpu_labels, gpu_patch, parse_gpus
from scripts.engine.serve import CPU_ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]


def archive(path: Path, tag: str, image: str) -> Path:
    manifest = json.dumps([{"RepoTags": [tag], "Config": image}]).encode()
    with tarfile.open(path, "w") as content:
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(manifest)
        content.addfile(entry, io.BytesIO(manifest))
    return path


def packed(folder: Path, program: str, content: bytes, digest: str = "") -> None:
    data = lzma.compress(content)
    (folder / f"{program}.xz").write_bytes(data)
    digest = digest or hashlib.sha256(data).hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  {program}.xz\n")


def test_gpus_are_given_by_node() -> None:
    assert parse_gpus("n1=1,n2=4") == {"n1": 1, "n2": 4}
    assert parse_gpus("") == {}


@pytest.mark.parametrize("text", ["n1", "n1=", "=1", "n1=-1", "n1=one"])
def test_other_words_for_gpus_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not of the form"):
        parse_gpus(text)


def test_a_node_without_cards_has_neither_the_resource_nor_the_labels() -> None:
    assert all(label.endswith("-") for label in gpu_labels(0))
    assert json.loads(gpu_patch(0))["status"]["capacity"] == {"nvidia.com/gpu": None}
    assert "nvidia.com/gpu.count=2" in gpu_labels(2)
    assert json.loads(gpu_patch(2))["status"]["capacity"] == {"nvidia.com/gpu": "2"}


def test_a_program_comes_out_of_its_archive(tmp_path: Path) -> None:
    packed(tmp_path, "etcd", b"program")
    folder = binaries.provide(["etcd"], tmp_path / "cache", tmp_path)
    assert (folder / "etcd").read_bytes() == b"program"
    assert (folder / "etcd").stat().st_mode & 0o111


def test_an_archive_that_is_not_what_its_sum_says_is_refused(tmp_path: Path) -> None:
    packed(tmp_path, "etcd", b"other", digest="0" * 64)
    with pytest.raises(MachineError, match="does not match"):
        binaries.provide(["etcd"], tmp_path / "cache", tmp_path)
    assert not list((tmp_path / "cache").glob("*/etcd"))


def test_a_tag_that_stands_for_another_image_is_imported_again(tmp_path: Path) -> None:
    first, second = (archive(tmp_path / f"{i}.tar", "app:dev", f"{i}.json") for i in "ab")
    (tmp_path / store.RECORD).write_text('{"app:dev": "a.json"}')
    assert store.missing(tmp_path, [first, second]) == [second]


def test_the_engine_image_sets_what_the_lane_sets() -> None:
    text = (ROOT / "tests" / "cluster" / "engine-image" / "Dockerfile").read_text()
    variables = dict(re.findall(r"^\s+([A-Z0-9_]+)=(\S+)", text, flags=re.MULTILINE))
    assert variables.items() >= CPU_ENVIRONMENT.items()
