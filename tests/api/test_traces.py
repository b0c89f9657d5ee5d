"""A request's trace, from the caller's to the engine's, as a collector gets it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.engine_standin import StandIn, server_before, stand_in
from tests.api.otlp import Collector, attributes, collector
from tests.api.server import Server
from tests.files import tiff_pages
from tests.pictures import LINES, picture, png_bytes

PNG = {"Content-Type": "image/png"}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with stand_in(tmp_path_factory.mktemp("engine"), 20) as running:
        yield running


@pytest.fixture(scope="module")
def spans() -> Iterator[Collector]:
    with collector() as running:
        yield running


@pytest.fixture(scope="module")
def server(
    engine: StandIn, spans: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with server_before(engine, folder, otlp_endpoint=spans.url, decode_workers=1) as running:
        yield running


def parent(trace_id: str, sampled: bool = True) -> dict[str, str]:
    """Headers of a caller with a trace of its own."""
    flags = "01" if sampled else "00"
    return {"traceparent": f"00-{trace_id}-{'2' * 16}-{flags}", "tracestate": "vendor=secret-state"}


def test_spans_nest_page_by_page_down_to_the_engine(server: Server, spans: Collector) -> None:
    trace_id = "a1" * 16
    document = tiff_pages([picture()[0]] * 3)
    headers = {"Content-Type": "image/tiff"} | parent(trace_id)
    with server.client() as client:
        answer = client.post("/v1/ocr?instruction=hunter2", content=document, headers=headers)
        assert answer.status_code == 200
        headers |= parent("f6" * 16)
        refused = client.post("/v1/ocr?priority=hunter2", content=document, headers=headers)
        assert refused.status_code == 422
    (lone,) = spans.trace("f6" * 16)
    assert attributes(lone)["error.type"] == "invalid_field"
    found = spans.trace(trace_id)
    names = {span.span_id: span.name for span in found}
    below: dict[str, list[str]] = {}
    for span in found:
        below.setdefault(names.get(span.parent_span_id, "the caller"), []).append(span.name)
    assert sorted(below["request"]) == ["inspect", "page", "page", "page", "receive"]
    assert sorted(below["page"]) == sorted(["queue", "prepare", "queue", "engine"] * 3)
    assert below["engine"] == ["chat HunyuanOCR"] * 3
    pages = [span for span in found if span.name == "page"]
    indices = {attributes(span)["hunyuan_ocr.page.index"] for span in pages}
    assert indices == {0, 1, 2}
    # Each page has its own way to the engine.
    parents = {span.parent_span_id for span in found if span.name == "engine"}
    assert parents == {span.span_id for span in pages}
    request = attributes(next(span for span in found if span.name == "request"))
    assert request["http.route"] == "/v1/ocr"
    assert request["http.response.status_code"] == 200
    call = attributes(next(span for span in found if span.name.startswith("chat")))
    assert call["gen_ai.operation.name"] == "chat"
    assert call["gen_ai.request.model"] == "HunyuanOCR"
    assert (call["gen_ai.usage.input_tokens"], call["gen_ai.usage.output_tokens"]) == (812, 24)
    assert call["gen_ai.response.finish_reasons"] == ("stop",)
    sent = b"".join(spans.bodies)
    for word in (*LINES, "hunter2", "secret-state"):
        assert word.encode() not in sent


def test_a_chat_that_is_passed_through_is_a_span_too(server: Server, spans: Collector) -> None:
    trace_id = "b2" * 16
    asked = {"model": "callers-word", "messages": [{"role": "user", "content": "hunter2"}]}
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    with server.client() as client:
        for more in ({}, streamed):
            answer = client.post(
                "/v1/chat/completions", json=asked | more, headers=parent(trace_id)
            )
            assert answer.status_code == 200
    deadline = time.monotonic() + 15
    calls: list[dict[str, object]] = []
    while len(calls) < 2 and time.monotonic() < deadline:
        found = spans.trace(trace_id)
        calls = [attributes(span) for span in found if span.name == "chat HunyuanOCR"]
        time.sleep(0.1)
    assert len(calls) == 2
    for call in calls:
        assert call["gen_ai.usage.output_tokens"] == 24
        assert call["gen_ai.response.finish_reasons"] == ("stop",)
    sent = b"".join(spans.bodies)
    assert b"hunter2" not in sent
    assert b"callers-word" not in sent


def test_a_caller_that_records_nothing_is_followed(server: Server, spans: Collector) -> None:
    unrecorded, recorded = "c3" * 16, "d4" * 16
    with server.client() as client:
        for trace_id in (unrecorded, recorded):
            headers = PNG | parent(trace_id, sampled=trace_id == recorded)
            assert client.post("/v1/ocr", content=png_bytes(), headers=headers).is_success
    assert spans.trace(recorded)
    assert not [span for span in spans.spans() if span.trace_id.hex() == unrecorded]


def test_log_line_and_exemplar_name_the_trace(server: Server) -> None:
    trace_id = "e5" * 16
    with server.client() as client:
        headers = PNG | parent(trace_id) | {"X-Request-Id": "traced"}
        client.post("/v1/ocr", content=png_bytes(), headers=headers)
        assert server.log_of("traced")["trace_id"] == trace_id
        accept = {"Accept": "application/openmetrics-text;version=1.0.0"}
        scrape = client.get(f"{server.management_url}/metrics", headers=accept)
    assert f'# {{trace_id="{trace_id}"}}' in scrape.text


@pytest.mark.parametrize("hangs", [True, False])
def test_with_the_collector_down_nothing_slows(
    engine: StandIn, tmp_path: Path, hangs: bool
) -> None:
    """One that takes connections and says nothing, and one that is not there."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if hangs:
            listening.listen(16)
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with server_before(engine, tmp_path, otlp_endpoint=endpoint, decode_workers=1) as server:
            with server.client() as client:
                body = {"messages": [{"role": "user", "content": "Read."}]}
                began = time.monotonic()
                for _ in range(150):  # more spans than are sent at once
                    assert client.post("/v1/chat/completions", json=body).is_success
                each_s = (time.monotonic() - began) / 150
                first = client.post("/v1/ocr", content=png_bytes(), headers=PNG)
            ending = time.monotonic()
        ended_s = time.monotonic() - ending
    assert each_s < 0.5
    assert first.is_success
    assert ended_s < 10
    records = server.usage.read_text("utf-8").splitlines()
    assert [json.loads(line)["outcome"] for line in records] == ["answered"] * 151
