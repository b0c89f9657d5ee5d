"""One trace from a caller's request down to vLLM's own spans, through a real collector."""

from __future__ import annotations

import time
from io import BytesIO
from pathlib import Path

from PIL import Image

from tests.api.otlp import Collector, attributes, collector
from tests.engine.conftest import running
from tests.engine.otelcol import otelcol
from tests.engine.papers import invoices
from tests.engine.sidecar import sidecar

TRACE_ID = "7e" * 16


def test_a_page_of_a_pdf_is_one_trace_down_to_vllm(tmp_path: Path) -> None:
    (paper,) = invoices(1, seed=5)
    document = BytesIO()
    Image.open(BytesIO(paper.png)).convert("RGB").save(document, "PDF")
    with collector() as spans, otelcol(tmp_path, spans.url) as otlp_url:
        otlp = ("--otlp-endpoint", f"{otlp_url}/v1/traces")
        with (
            running("0.28.0", 8133, *otlp) as engine,
            sidecar(tmp_path, engine.url, otlp_endpoint=otlp_url) as service,
            service.client(traceparent=f"00-{TRACE_ID}-{'2' * 16}-01") as client,
        ):
            headers = {"Content-Type": "application/pdf"}
            answer = client.post("/v1/ocr", content=document.getvalue(), headers=headers)
            assert answer.status_code == 200, answer.text
            _until_vllm_told(spans)
    found = {span.span_id: span for span in spans.trace(TRACE_ID)}
    (request_of_vllm,) = (span for span in found.values() if span.name == "llm_request")
    way, parent = [], found.get(request_of_vllm.parent_span_id)
    while parent is not None:
        way.append(parent.name.split()[0])
        parent = found.get(parent.parent_span_id)
    assert way == ["chat", "engine", "page", "request"]
    told = attributes(request_of_vllm)
    usage = answer.json()["usage"]
    assert told["gen_ai.usage.completion_tokens"] == usage["output_tokens"]
    assert told["gen_ai.usage.prompt_tokens"] == usage["prompt_tokens"]


def _until_vllm_told(spans: Collector) -> None:
    until = time.monotonic() + 15
    while time.monotonic() < until:
        if any(span.name == "llm_request" for span in spans.spans()):
            return
        time.sleep(0.2)
    raise AssertionError({span.name for span in spans.spans()})
