"""Direct requests to vLLM, past the service: what the engine itself does."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from hunyuan_ocr.engines.isolation import (
    CodedPage,
    IsolationReport,
    check_isolation,
    prefills_together,
)
from tests.engine.papers import PROMPT, chat

SAMPLING = {"temperature": 0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "seed": 1234}
MAX_TOKENS = 96  # three codes and some; an answer that goes on has lost its page


@dataclass(slots=True)
class Client:
    """`read` and `encoded_together` as the self-test wants them, for one engine."""

    http: aiohttp.ClientSession
    prompt_tokens: list[int] = field(default_factory=list)
    scraped: str = ""

    async def ask(self, image: bytes, text: str = PROMPT, system: str = "") -> dict[str, Any]:
        """One chat completion, image first.

        Raises:
            aiohttp.ClientError: the engine refused, failed or is gone.
        """
        body = chat(
            image, text, system=system, model="hunyuan-ocr", max_tokens=MAX_TOKENS, **SAMPLING
        )
        async with self.http.post("/v1/chat/completions", json=body) as response:
            response.raise_for_status()
            answer: dict[str, Any] = await response.json()
            return answer

    async def read(self, page: CodedPage) -> str:
        answer = await self.ask(page.image)
        self.prompt_tokens.append(int(answer["usage"]["prompt_tokens"]))
        return str(answer["choices"][0]["message"]["content"])

    async def encoded_together(self) -> int:
        async with self.http.get("/metrics") as response:
            before, self.scraped = self.scraped, await response.text()
        tokens, self.prompt_tokens = self.prompt_tokens, []
        return prefills_together(before, self.scraped, tokens) if before else 0

    async def healthy(self) -> bool:
        try:
            async with self.http.get("/health") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async def isolation(self, concurrency: int = 8) -> IsolationReport:
        return await check_isolation(
            self.read,
            self.encoded_together,
            random.Random(),
            time.monotonic,
            concurrency=concurrency,
        )


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Client]:
    timeout = aiohttp.ClientTimeout(total=120)
    connector = aiohttp.TCPConnector(limit=64)
    async with aiohttp.ClientSession(url, timeout=timeout, connector=connector) as http:
        yield Client(http)
