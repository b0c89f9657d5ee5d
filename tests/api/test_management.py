"""The management port, the OpenAPI document, and the service as a whole."""

from __future__ import annotations

import base64
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import jsonschema
import pytest

from tests.api.server import Server, running_server
from tests.pictures import LINES, png_bytes


def test_probes_and_metrics(server: Server, client: httpx.Client) -> None:
    client.post("/ocr", content=png_bytes(), headers={"Content-Type": "image/png"})
    with httpx.Client(base_url=server.management_url) as management:
        assert management.get("/livez").json() == {"status": "ok"}
        assert management.get("/readyz").json() == {"status": "ready"}
        scrape = management.get("/metrics")
        assert scrape.headers["content-type"].startswith("text/plain; version=0.0.4")
        accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
        asked_for = management.get("/metrics", headers=accept)
        assert asked_for.headers["content-type"].startswith("application/openmetrics-text")
        assert asked_for.text.endswith("# EOF\n")
        accept = {"Accept": "application/openmetrics-text;version=x"}
        assert management.get("/metrics", headers=accept).status_code == 200
        assert management.post("/livez").status_code == 405
        assert management.post("/ocr").status_code == 404
    for stage in ("receive", "inspect", "queue", "prepare", "engine"):
        assert f'hunyuan_ocr_stage_duration_seconds_count{{stage="{stage}"}}' in scrape.text
    assert server.metric("hunyuan_ocr_pages_total") >= 1


def test_a_page_waits_once(server: Server, client: httpx.Client) -> None:
    """First for its turn, then for its slots: one wait of one page."""

    def samples(stage: str) -> float:
        return server.metric(f'hunyuan_ocr_stage_duration_seconds_count{{stage="{stage}"}}')

    before = samples("queue"), samples("engine")
    client.post("/ocr", content=png_bytes(), headers={"Content-Type": "image/png"})
    assert (samples("queue"), samples("engine")) == (before[0] + 1, before[1] + 1)


def test_metrics_do_not_grow_with_what_callers_invent(server: Server, client: httpx.Client) -> None:
    def series() -> int:
        text = httpx.get(f"{server.management_url}/metrics").text
        return sum(not line.startswith("#") for line in text.splitlines())

    client.get("/unknown")
    client.request("BREW", "/unknown")
    before = series()
    for number in range(50):
        client.get(f"/path-{number}", headers={"X-Request-Id": f"id-{number}"})
        client.request(f"M{number}", "/ocr")
    assert series() == before


def test_options(client: httpx.Client) -> None:
    options = client.get("/v1/options").json()
    assert options["engine"] == "embedded"
    assert {"text", "spotting"} <= set(options["tasks"])
    assert "application/pdf" in options["inputs"]
    assert options["limits"]["max_pages"] >= 1


def test_the_openapi_examples_work(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    operation = document["paths"]["/ocr"]["post"]
    body = operation["requestBody"]["content"]["application/json"]["examples"]["picture"]["value"]
    answer = operation["responses"]["200"]["content"]["application/json"]["example"]
    assert client.post("/ocr", json=body).json() == answer
    assert client.get("/docs").status_code == 200


def test_answers_fit_the_openapi_document(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    schema = {"$ref": "#/components/schemas/DocumentOut", "components": document["components"]}
    picture = base64.b64encode(png_bytes()).decode()
    jsonschema.validate(client.post("/v1/ocr", json={"image": picture}).json(), schema)
    problem = {"$ref": "#/components/schemas/Problem", "components": document["components"]}
    jsonschema.validate(client.post("/v1/ocr", json={}).json(), problem)


def test_schemathesis_finds_no_server_error(server: Server) -> None:
    """Generated requests, valid and not, through the published document."""
    command = [
        str(Path(sys.executable).parent / "schemathesis"),
        "run",
        f"{server.url}/openapi.json",
        "--checks=not_a_server_error,status_code_conformance,content_type_conformance",
        "--max-examples=30",
        "--phases=examples,coverage,fuzzing",
        "--seed=1",
        "--workers=1",
        "--request-timeout=60",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_a_page_in_flight_is_finished_after_sigterm(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        with running_server(tmp_path, embedded_workers=1, decode_workers=1) as server:
            waiting = pool.submit(
                httpx.post,
                f"{server.url}/ocr",
                content=png_bytes(),
                headers={"Content-Type": "image/png"},
                timeout=60,
            )
            while server.metric("hunyuan_ocr_pages_in_flight") < 1:
                assert not waiting.done()
                time.sleep(0.005)
        # Leaving the block sent SIGTERM and waited for a clean exit.
        assert waiting.result().json()["text"] == "\n".join(LINES)
    assert not [line for line in server.log_lines() if line["level"] == "error"]
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url)


def test_the_embedded_engine_needs_no_restart_and_has_no_metrics_of_its_own(
    server: Server,
) -> None:
    with httpx.Client(base_url=server.management_url) as management:
        assert management.get("/engine/startz").json() == {"status": "up"}
        assert management.get("/engine/livez").json() == {"status": "ok"}
        absent = management.get("/metrics/engine")
        assert (absent.status_code, "embedded" in absent.json()["reason"]) == (404, True)


def test_an_engine_that_is_not_there_yet_is_starting_and_not_dead(tmp_path: Path) -> None:
    nowhere = {"engine": "vllm", "vllm_url": "http://127.0.0.1:1"}
    with (
        running_server(tmp_path, probe="livez", **nowhere) as server,
        httpx.Client(base_url=server.management_url) as management,
    ):
        starting = management.get("/engine/startz")
        assert (starting.status_code, "reason" in starting.json()) == (503, True)
        assert management.get("/engine/livez").status_code == 200
        assert management.get("/metrics/engine").status_code == 503
        assert management.get("/readyz").status_code == 503
