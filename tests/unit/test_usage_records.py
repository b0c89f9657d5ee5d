"""Usage records: every one is written whole or counted as lost, and nobody waits for the disk."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter
from pydantic import ValidationError

from hunyuan_ocr.settings import Settings
from hunyuan_ocr.telemetry import usage_records
from hunyuan_ocr.telemetry.metrics import Metrics
from hunyuan_ocr.telemetry.usage import RequestUsage
from hunyuan_ocr.telemetry.usage_records import OFF, STDOUT, UsageRecords


@pytest.fixture
def lost() -> Counter:
    return Counter("lost_total", "Lost.", registry=CollectorRegistry())


def count(lost: Counter) -> float:
    (family,) = lost.collect()
    return family.samples[0].value


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_records_are_appended_a_line_each_and_all_are_there_after_closing(
    tmp_path: Path, lost: Counter
) -> None:
    path = tmp_path / "usage"
    for start in (0, 1000):  # a second process of the same service
        records = UsageRecords(str(path), lost)
        records.start()
        for number in range(start, start + 1000):
            records.write({"number": number, "tenant": "a\nb\ud800"})
        records.close()
    assert [line["number"] for line in lines(path)] == list(range(2000))
    assert count(lost) == 0
    records.write({"number": 2000})
    assert count(lost) == 1


def test_off_writes_nothing_and_loses_nothing(
    lost: Counter, capfd: pytest.CaptureFixture[str]
) -> None:
    records = UsageRecords(OFF, lost)
    records.start()
    records.write({"number": 1})
    records.close()
    assert capfd.readouterr().out == ""
    assert count(lost) == 0


def test_standard_output_stays_open(lost: Counter, capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        records = UsageRecords(STDOUT, lost)
        records.start()
        records.write({"number": number})
        records.close()
    assert capfd.readouterr().out == '{"number": 0}\n{"number": 1}\n'


def test_a_full_disk_loses_records_and_counts_them(
    lost: Counter, caplog: pytest.LogCaptureFixture
) -> None:
    records = UsageRecords("/dev/full", lost)
    records.start()
    for number in range(50):
        records.write({"number": number})
    records.close()
    assert count(lost) == 50
    assert "No space left" in caplog.text


def test_a_line_that_was_cut_spoils_no_other(tmp_path: Path, lost: Counter) -> None:
    """A pipe takes part of a batch; later there is room again."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    room = fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    records = UsageRecords(str(pipe), lost)
    writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    try:
        batch: list[Any] = [{"number": number, "filling": "x" * 500} for number in range(20)]
        records._write_all(writer, batch)  # as a file system that fills up would take it
        first = os.read(reader, room)
        records._write_all(writer, [{"number": 99}])
        after = os.read(reader, room)
    finally:
        os.close(writer)
        os.close(reader)
    whole = first.count(b"\n")
    assert 0 < whole < 20
    assert count(lost) == 20 - whole
    assert not first.endswith(b"\n")
    assert after == b'\n{"number": 99}\n'


def test_whoever_does_not_read_holds_up_nobody_and_what_is_lost_is_counted(
    tmp_path: Path, lost: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_records, "_WAITING_MAX", 100)
    monkeypatch.setattr(usage_records, "_CLOSE_WITHIN_S", 0.3)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    room = fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    records = UsageRecords(str(pipe), lost)
    records.start()
    began = time.monotonic()
    for number in range(1000):
        records.write({"number": number, "filling": "x" * 100})
    assert time.monotonic() - began < 1
    records.close()
    assert time.monotonic() - began < 2
    # The reader got one pipe full at most.
    assert 1000 - room / 100 <= count(lost) <= 1000
    os.close(reader)


@pytest.mark.parametrize("target", ["stdou", "usage.jsonl", "", "off "])
def test_a_target_that_is_none_is_refused(target: str) -> None:
    with pytest.raises(ValidationError):
        Settings(usage_records=target)


def test_what_is_counted_for_a_record_is_counted_for_the_metrics() -> None:
    metrics = Metrics("test")
    requests = [RequestUsage(metrics.pages) for _ in range(3)]
    for number, usage in enumerate(requests):
        for page in range(7):
            usage.page_read("text", "vllm", 333_331 + page, "stop", degraded=page == 3)
            usage.add_turn(0.3, 0.1 + number / 3)
            usage.add_tokens(10, page)
        usage.page_failed("text", "vllm", "deadline_exceeded")
    records: list[Any] = [usage.record() for usage in requests]

    def metric(name: str, **labels: str) -> float:
        return metrics.registry.get_sample_value(f"hunyuan_ocr_{name}_total", labels) or 0

    def total(name: str) -> float:
        return round(sum(float(record[name]) for record in records), 6)

    assert total("pages") == metric("pages", task="text", engine="vllm", outcome="ok") == 21
    failed = metric("pages", task="text", engine="vllm", outcome="deadline_exceeded")
    assert total("pages_failed") == failed == 3
    assert total("megapixels") == round(metric("megapixels"), 6) == 7.000014
    assert total("prompt_tokens") == metric("tokens", direction="prompt") == 210
    assert total("output_tokens") == metric("tokens", direction="output") == 63
    used = round(metric("engine_slot_seconds", kind="used"), 6)
    assert total("engine_slot_seconds") == used > 0
    assert metric("finished_pages", task="text", reason="stop") == 21
    assert metric("degraded_pages") == 3
