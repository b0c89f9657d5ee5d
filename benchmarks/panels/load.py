"""Callers of every kind, at once: what boards should show of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import httpx

from tests.engine.papers import chat, invoices
from tests.files import pdf_pages, quadrants
from tests.pictures import saved

_CALLERS = 4
_PAUSE_S = 0.3


def _ways(seed: int) -> list[Mapping[str, Any]]:
    """Arguments of a POST, one for each kind of caller."""
    papers = [paper.png for paper in invoices(8, seed=seed)]
    page = {"url": "/v1/ocr", "headers": {"Content-Type": "image/png"}, "content": papers[0]}
    blank = saved(quadrants().convert("L").point(lambda _: 255), "PNG")
    return [
        *({**page, "content": png, "params": {"priority": "interactive"}} for png in papers),
        {**page, "params": {"priority": "standard"}},
        {**page, "params": {"priority": "batch"}},
        {**page, "params": {"task": "spotting"}},
        {**page, "content": blank},
        {**page, "content": b"neither picture nor document"},
        {**page, "content": pdf_pages(2), "headers": {"Content-Type": "application/pdf"}},
        {**page, "params": {"timeout_s": "0.01"}},
        {**page, "timeout": 0.05},
        {"url": "/v1/chat/completions", "json": chat(papers[1])},
        {"url": "/v1/chat/completions", "json": chat(papers[2], max_tokens=3)},
        {"url": "/nowhere", "content": b""},
    ]


async def mixed(url: str, seconds: float) -> None:
    """Some callers, each of which sends one kind of request after the other, again and again."""
    limit = asyncio.get_running_loop().time() + seconds
    async with httpx.AsyncClient(base_url=url, timeout=60) as http, asyncio.TaskGroup() as group:
        for seed in range(_CALLERS):
            group.create_task(_calls(http, seed, limit))


async def _calls(http: httpx.AsyncClient, seed: int, limit: float) -> None:
    rng, ways = random.Random(seed), _ways(seed)
    while asyncio.get_running_loop().time() < limit:
        await _ask(http, rng.choice(ways))
        await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))


async def flooded(url: str, priority: str, callers: int) -> None:
    """Until cancelled: so many callers of a class who come back as soon as they may."""
    page = {
        "url": "/v1/ocr",
        "content": next(invoices(1, seed=9)).png,
        "headers": {"Content-Type": "image/png"},
        "params": {"priority": priority},
    }

    async def one(http: httpx.AsyncClient) -> None:
        while True:
            await _ask(http, page)
            await asyncio.sleep(0.2)

    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as http,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(callers):
            group.create_task(one(http))


async def _ask(http: httpx.AsyncClient, way: Mapping[str, Any]) -> None:
    with suppress(httpx.TransportError):  # some of them leave
        await http.post(**way)
