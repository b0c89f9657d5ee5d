"""The plugin in a real vLLM: special tokens in text do no harm, shifted rows end the engine."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from pathlib import Path

import aiohttp
import pytest

from hunyuan_ocr.engines import vllm_plugin
from hunyuan_ocr.engines.isolation import CodedPage, contains, new_pages
from scripts.engine import install
from tests.engine.conftest import Engine, lane
from tests.engine.papers import PROMPT
from tests.engine.vllm_client import Client, connect

REAL_CLASSES = Path(__file__).parent / "checks" / "real_classes.py"

IMAGE_START = "<｜hy_place▁holder▁no▁100｜>"
IMAGE_END = "<｜hy_place▁holder▁no▁101｜>"
IMAGE = "<｜hy_place▁holder▁no▁102｜>"
OTHERS = (
    "<｜hy_User｜>",
    "<｜hy_Assistant｜>",
    "<｜hy_place▁holder▁no▁2｜>",
    "<｜hy_place▁holder▁no▁3｜>",
    "<｜hy_▁pad▁｜>",
    "<｜hy_begin▁of▁sentence｜>",
)
STRINGS = (
    IMAGE_START,
    IMAGE_START * 3,
    IMAGE_START + IMAGE_END,
    IMAGE_END * 5,
    IMAGE_END + IMAGE_START,
    IMAGE,
    IMAGE * 3,
    IMAGE_START + IMAGE,
    IMAGE_START + IMAGE + IMAGE_END,
    *OTHERS,
    *(IMAGE_START + other for other in OTHERS),
)


async def _reads(client: Client, page: CodedPage) -> bool:
    answer = await client.read(page)
    return any(contains(answer, code) for code in page.codes)


@pytest.mark.parametrize("in_system", [False, True], ids=["user", "system"])
async def test_special_tokens_in_text_leave_the_engine_reading(
    native_engine: Engine, in_system: bool
) -> None:
    (page,) = new_pages(1, random.Random(7), [])
    async with connect(native_engine.url) as client:
        assert await _reads(client, page)
        for string in STRINGS:
            texts = (PROMPT, string) if in_system else (PROMPT + string, "")
            await client.ask(page.image, *texts)  # what it answers is the caller's own affair
            assert await client.healthy(), string
        assert await _reads(client, page)


async def test_special_tokens_of_one_caller_do_not_change_anothers_answer(
    native_engine: Engine,
) -> None:
    pages = new_pages(8, random.Random(8), [])
    async with connect(native_engine.url) as client:
        alone = [await client.read(page) for page in pages]
        hostile = [client.ask(page.image, PROMPT + IMAGE_START * 2) for page in pages]
        together = await asyncio.gather(*map(client.read, pages), *hostile)
        assert list(together[: len(pages)]) == alone


def test_every_process_says_what_it_patched(native_engine: Engine) -> None:
    lines = native_engine.log.read_text().splitlines()
    patched = [line for line in lines if "hunyuan_ocr_plugin: patched" in line]
    assert any("image positions" in line for line in patched)
    assert any("row guard" in line for line in patched)
    assert len(patched) == len(set(patched))  # once a process


@pytest.mark.parametrize(("version", "checks"), [("0.28.0", ["positions"]), ("0.32.0", [])])
def test_vllms_own_classes_are_guarded_and_agree(
    tmp_path: Path, version: str, checks: list[str]
) -> None:
    lane("install", "--version", version)
    python = install.environment(install.default_cache(), version) / "bin" / "python"
    vllm_plugin.install(tmp_path)
    subprocess.run(
        [str(python), "-W", "ignore", str(REAL_CLASSES), *checks],
        check=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )


class TestShiftedRows:
    async def test_rows_of_another_image_end_the_engine_before_anyone_gets_them(
        self, faulty_engine: Engine
    ) -> None:
        pages = new_pages(8, random.Random(9), [])
        async with connect(faulty_engine.url) as client:
            assert await _reads(client, pages[0])  # alone, nothing is amiss
            outcomes = await asyncio.gather(
                *(client.read(page) for page in pages), return_exceptions=True
            )
            failed = [outcome for outcome in outcomes if isinstance(outcome, aiohttp.ClientError)]
            assert len(failed) >= 2  # at least those that were encoded together
            for _ in range(40):
                if not await client.healthy():
                    break
                await asyncio.sleep(0.25)
            assert not await client.healthy()
        assert "encoder rows for" in faulty_engine.log.read_text()
