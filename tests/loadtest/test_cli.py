"""The commands as a person calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadtest.cli import app
from loadtest.results import to_json
from tests.loadtest.findings import SIXTEEN, summary

QUICK = ("--pages", "64x64", "--distinct", "2", "--warm-up", "0.2", "--seconds", "0.8")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "loadtest.fake_server", "--port", "0", "--service-s", "0.05",
         "--knee", "4", "--cv", "0.1"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    process.terminate()
    process.wait()
    process.stdout.close()


def called(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


@pytest.mark.parametrize("command", ["run", "sweep", "engine-sweep", "report"])
def test_help_has_examples(command: str) -> None:
    code, text = called(command, "--help")
    assert code == 0
    assert "Example" in text


@pytest.mark.parametrize("load", [("--rate", "20"), ("--concurrency", "2")])
def test_one_step_is_counted_and_written(url: str, load: tuple[str, str], tmp_path: Path) -> None:
    code, text = called(
        "run", url, *load, *QUICK, "--about", "gpu=none", "--json", "--output", str(tmp_path)
    )
    assert code == 0, text
    printed = json.loads(text.splitlines()[-1])
    assert printed == json.loads((tmp_path / "summary.json").read_text())
    (step,) = printed["findings"]["steps"]
    assert step["counts"]["in_time"] == step["counts"]["due"] > 0
    assert printed["about"]["gpu"] == "none"
    requests = (tmp_path / "requests.jsonl").read_text().splitlines()
    assert len(requests) >= step["counts"]["due"]
    assert {"values.yaml", "steps.csv", "report.html", "curve.png"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_a_trace_is_replayed(url: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.write_text("0\n0.1\n0.2\n")
    code, text = called("run", url, "--trace", str(trace), *QUICK, "--output", str(tmp_path))
    assert code == 0, text
    assert "replay" in (tmp_path / "steps.csv").read_text()


def test_a_sweep_tells_the_knee(url: str, tmp_path: Path) -> None:
    code, text = called(
        "sweep", url, "--to", "12", "--repeats", "1", "--open-shares", "0.5", "--slo-p95", "0.15",
        *QUICK, "--output", str(tmp_path),
    )  # fmt: skip
    assert code == 0, text
    # How exact it is in real time is for the figure `knee`.
    assert "Knee at" in text or "No knee" in text
    assert "The promise" in text
    assert "poisson" in (tmp_path / "steps.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("run", "http://127.0.0.1:9", "--rate", "1", *QUICK), "unreachable"),
        (("run", "http://127.0.0.1:9"), "give one of"),
        (("run", "http://127.0.0.1:9", "--rate", "1", "--pages", "big"), "big"),
        (("run", "http://127.0.0.1:9", "--rate", "1", "--body", "[]"), "JSON object"),
        (("run", "http://127.0.0.1:9", "--rate", "1", "--about", "gpu"), "NAME=VALUE"),
        (("sweep", "http://127.0.0.1:9", "--from", "8", "--to", "4"), "--to"),
        (("engine-sweep", "--command", "vllm serve"), "$"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: tuple[str, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, text = called(*arguments)
    assert code == 2
    assert why in text
    assert "Traceback" not in text


def test_results_are_drawn_again_and_over_each_other(tmp_path: Path) -> None:
    for name in ("with", "without"):
        (tmp_path / f"{name}.json").write_text(to_json(summary(SIXTEEN, name=name)))
    files = [str(tmp_path / f"{name}.json") for name in ("with", "without")]
    code, text = called("report", *files, "--output", str(tmp_path / "both"))
    assert code == 0, text
    assert (tmp_path / "both" / "curve.png").stat().st_size > 10_000
    code, _ = called("report", files[0], "--output", str(tmp_path / "one"), "--profile", "h200")
    assert code == 0
    assert "h200" in (tmp_path / "one" / "values.yaml").read_text()
    (tmp_path / "other.json").write_text("{}")
    code, text = called("report", str(tmp_path / "other.json"))
    assert code == 2
    assert "no summary" in text


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("sweep", "http://localhost:1", "--open-shares", "0"), "above 0"),
        (("sweep", "http://localhost:1", "--open-shares", "0.5,-1"), "above 0"),
        (("sweep", "http://localhost:1", "--from", "0.4"), "1 at the least"),
        (("run", "localhost:7860", "--rate", "1"), "http://"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_sent(
    words: tuple[str, ...], why: str
) -> None:
    code, text = called(*words)
    assert code == 2
    assert why in text
