"""The model: who downloads it, where it appears, and that one writer at a time is at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.chart.render import CHART, Manifest, containers, only
from tests.chart.conftest import Render, policy

SCRIPT = CHART / "files" / "model.py"
REVISION = "b" * 40


def deployment(documents: list[Manifest]) -> dict[str, Manifest]:
    return containers(only(documents, "Deployment")["spec"]["template"]["spec"])


def kinds(documents: list[Manifest]) -> set[str]:
    return {document["kind"] for document in documents}


def test_a_pod_with_a_volume_of_its_own_downloads(render: Render) -> None:
    documents = render("rtx-4090-d")
    assert not {"Job", "PersistentVolumeClaim"} & kinds(documents)
    assert deployment(documents)["model"]["args"][1] == "fetch"


def test_with_a_claim_one_job_downloads_and_pods_wait(render: Render) -> None:
    documents = render("shared-claim")
    (download,) = only(documents, "Job")["spec"]["template"]["spec"]["containers"]
    wait = deployment(documents)["model"]
    assert download["args"][1] == "fetch"
    assert wait["args"][1] == "wait"
    assert download["args"][2:6] == wait["args"][2:6]
    assert wait["volumeMounts"][0]["readOnly"] is True
    assert "HF_TOKEN" not in {e["name"] for c in deployment(documents).values() for e in c["env"]}
    labels = only(documents, "Job")["spec"]["template"]["metadata"]["labels"]
    found = policy(documents, "model")
    assert found["podSelector"]["matchLabels"] == labels
    assert found["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in found


def test_a_claim_of_one_node_is_filled_by_the_pod(render: Render) -> None:
    """A Job on another node and a pod that waits for it would keep the claim from each other."""
    documents = render("rtx-4090-d", {"model": {"cache": "pvc"}})
    assert "PersistentVolumeClaim" in kinds(documents)
    assert "Job" not in kinds(documents)
    model = deployment(documents)["model"]
    assert model["args"][1] == "fetch"
    assert model["volumeMounts"][0] == {"name": "model", "mountPath": "/models-cache"}


def test_vllm_opens_what_the_job_fetched(render: Render) -> None:
    documents = render("shared-claim")
    _, root, repository, revision = deployment(documents)["model"]["args"][1:5]
    assert deployment(documents)["vllm"]["args"][2] == f"{root}/{repository}/{revision}"


def test_a_job_that_would_change_gets_another_name(render: Render) -> None:
    """A Job's template cannot be changed: an upgrade under the same name would fail."""
    first = only(render("shared-claim"), "Job")
    same = only(render("shared-claim", {"replicas": 3, "podLabels": {"a": "b"}}), "Job")
    assert same == first
    for changes in ({"model": {"revision": REVISION}}, {"nodeSelector": {"pool": "gpu"}}):
        other = only(render("shared-claim", changes), "Job")
        assert other["spec"]["template"] != first["spec"]["template"]
        assert other["metadata"]["name"] != first["metadata"]["name"]
    assert len(first["metadata"]["name"]) <= 63


@pytest.mark.parametrize("keep", [True, False])
def test_the_claim_outlives_the_release_only_when_asked_to(render: Render, keep: bool) -> None:
    documents = render("shared-claim", {"model": {"pvc": {"keepOnUninstall": keep}}})
    annotations = only(documents, "PersistentVolumeClaim")["metadata"].get("annotations", {})
    assert (annotations.get("helm.sh/resource-policy") == "keep") is keep


def test_a_model_on_ones_own_claim_or_in_the_image_is_not_fetched(render: Render) -> None:
    for case in ("air-gapped", "cpu-trial", "embedded"):
        documents = render(case)
        assert "Job" not in kinds(documents)
        assert "model" not in deployment(documents)


# A hub whose downloads take part in the test: it says when it began and waits to be let go on.
HUB = """
import os, pathlib, time
def snapshot_download(repository, *, revision, local_dir, ignore_patterns=()):
    here = pathlib.Path(local_dir); here.mkdir(exist_ok=True)
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(f"{repository} {revision} {list(ignore_patterns)}\\n")
    while not pathlib.Path(os.environ["GO"]).exists():
        time.sleep(0.01)
    (here / ".cache").mkdir(exist_ok=True)
    if "BROKEN" not in os.environ:
        (here / "config.json").write_text("{}")
"""


class Claim:
    """A folder that several processes of files/model.py share."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "claim"
        self.target = self.root / "org" / "model" / REVISION
        self.go = folder / "go"
        self.calls = folder / "calls"
        self.calls.touch()
        (folder / "huggingface_hub.py").write_text(HUB)
        self._environment = os.environ | {
            "PYTHONPATH": str(folder),
            "GO": str(self.go),
            "CALLS": str(self.calls),
        }

    def start(self, mode: str, **variables: str) -> subprocess.Popen[str]:
        arguments = [mode, str(self.root), "org/model", REVISION, "huggingface", "v1.0/*"]
        return subprocess.Popen(
            [sys.executable, SCRIPT, *arguments],
            env=self._environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, mode: str, **variables: str) -> tuple[int, str]:
        with self.start(mode, **variables) as process:
            output, _ = process.communicate(timeout=30)
            return process.returncode, output


@pytest.fixture
def claim(tmp_path: Path) -> Claim:
    return Claim(tmp_path)


def test_one_of_two_writers_fetches_and_a_reader_sees_it_whole(claim: Claim) -> None:
    writers = [claim.start("fetch"), claim.start("fetch")]
    reader = claim.start("wait")
    # A writer is listed once it has the lock.
    while not claim.calls.read_text():
        assert all(process.poll() is None for process in (*writers, reader))
    assert not claim.target.exists()
    claim.go.touch()
    for process in (*writers, reader):
        output, _ = process.communicate(timeout=30)
        assert process.returncode == 0, output
    assert claim.calls.read_text() == f"org/model {REVISION} ['v1.0/*']\n"
    assert [path.name for path in claim.target.iterdir()] == ["config.json"]


def test_what_is_there_is_not_fetched_again(claim: Claim) -> None:
    claim.go.touch()
    assert claim.run("fetch")[0] == 0
    assert claim.run("fetch")[0] == 0
    assert len(claim.calls.read_text().splitlines()) == 1


def test_a_pod_that_is_deleted_ends_its_download(claim: Claim) -> None:
    """As a container's first process it gets no signal that it does not handle itself."""
    with claim.start("fetch") as process:
        while not claim.calls.read_text():
            assert process.poll() is None
        process.terminate()
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
    claim.go.touch()
    assert claim.run("fetch")[0] == 0


def test_a_download_without_a_model_fails_and_the_next_one_goes_on(claim: Claim) -> None:
    claim.go.touch()
    status, output = claim.run("fetch", BROKEN="1")
    assert status == 1
    assert "holds no config.json" in output
    assert not claim.target.exists()
    assert claim.run("fetch")[0] == 0
    assert claim.target.is_dir()
