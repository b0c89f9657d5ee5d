"""No caller sees a word of another caller's page, and an engine that leaks is not let in."""

from __future__ import annotations

import random
import time
from pathlib import Path

import httpx

from hunyuan_ocr.engines.isolation import new_pages
from tests.engine.coded import read_pages
from tests.engine.conftest import Engine
from tests.engine.papers import invoices
from tests.engine.sidecar import sidecar


async def test_coded_pages_stay_with_their_callers_on_every_route(
    native_engine: Engine, tmp_path: Path
) -> None:
    pages = new_pages(96, random.Random(40), [])
    with sidecar(tmp_path, native_engine.url) as service:
        alone = await read_pages(service.url, pages, in_flight=1)
        together = await read_pages(service.url, pages, in_flight=16)
    assert together.foreign == 0
    assert together.own >= 0.99 * alone.own
    assert alone.own >= 0.9 * alone.codes


class TestLeaking:
    def test_an_engine_that_leaks_is_not_let_in(
        self, leaking_engine: Engine, tmp_path: Path
    ) -> None:
        with sidecar(tmp_path, leaking_engine.url, probe="livez") as service:
            deadline = time.monotonic() + 30
            while "leaking" not in (
                reason := httpx.get(f"{service.management_url}/readyz").json()["reason"]
            ):
                assert time.monotonic() < deadline, reason
                time.sleep(0.2)
            assert "isolation self-test" in reason
            (paper,) = invoices(1, seed=41)
            response = httpx.post(
                f"{service.url}/ocr", content=paper.png, headers={"Content-Type": "image/png"}
            )
            assert response.status_code == 503
            assert response.json()["code"] == "engine_unavailable"
            chat = httpx.post(
                f"{service.url}/v1/chat/completions",
                json={"messages": [{"role": "user", "content": "a"}]},
            )
            assert chat.status_code == 503
