"""Coded pages read through the service's routes by many callers at once."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import httpx

from hunyuan_ocr.engines.isolation import CodedPage, contains
from tests.engine.papers import chat

Route = Callable[[httpx.AsyncClient, CodedPage], Awaitable[str]]


async def by_ocr(client: httpx.AsyncClient, page: CodedPage) -> str:
    body = {"image": base64.b64encode(page.image).decode(), "timeout_s": 300}
    response = await client.post("/ocr", json=body)
    return str(response.raise_for_status().json()["text"])


async def by_v1(client: httpx.AsyncClient, page: CodedPage) -> str:
    response = await client.post(
        "/v1/ocr", files={"file": ("p", page.image)}, data={"timeout_s": 300}
    )
    return str(response.raise_for_status().json()["pages"][0]["text"])


async def by_chat(client: httpx.AsyncClient, page: CodedPage) -> str:
    response = await client.post("/v1/chat/completions", json=chat(page.image, max_tokens=128))
    return str(response.raise_for_status().json()["choices"][0]["message"]["content"])


ROUTES: tuple[Route, ...] = (by_ocr, by_v1, by_chat)


@dataclass(frozen=True, slots=True)
class Tally:
    """Codes found: `foreign` in other pages' answers, `own` in their own, of `codes` in all."""

    codes: int
    foreign: int
    own: int


async def read_pages(
    base_url: str, pages: Sequence[CodedPage], in_flight: int, routes: Sequence[Route] = ROUTES
) -> Tally:
    """Read every page once, the routes in turn, `in_flight` at a time."""
    gate = asyncio.Semaphore(in_flight)
    limits = httpx.Limits(max_connections=in_flight)
    async with httpx.AsyncClient(base_url=base_url, timeout=300, limits=limits) as client:

        async def read(number: int, page: CodedPage) -> str:
            async with gate:
                return await routes[number % len(routes)](client, page)

        answers = await asyncio.gather(*(read(n, page) for n, page in enumerate(pages)))
    own = sum(
        contains(answer, code)
        for page, answer in zip(pages, answers, strict=True)
        for code in page.codes
    )
    foreign = sum(
        contains(answer, code)
        for page, answer in zip(pages, answers, strict=True)
        for other in pages
        if other is not page
        for code in other.codes
    )
    return Tally(sum(len(page.codes) for page in pages), foreign, own)
