"""What the boards ask of vLLM, the pinned vLLM still has."""

from __future__ import annotations

import random
from pathlib import Path

from dashboards import scrape
from hunyuan_ocr.engines.isolation import new_pages
from tests.engine.conftest import Engine
from tests.engine.vllm_client import connect

GOLDEN = Path(scrape.__file__).with_name("golden") / "vllm-0.28.txt"


async def test_the_list_is_that_of_the_engine(native_engine: Engine) -> None:
    (page,) = new_pages(1, random.Random(1), [])
    async with connect(native_engine.url) as client:
        await client.read(page)
        async with client.http.get("/metrics") as response:
            found = scrape.listed(await response.text())
    assert not set(GOLDEN.read_text("utf-8").splitlines()) - set(found)
