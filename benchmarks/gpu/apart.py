"""Are callers kept apart? Coded pages of mixed sizes, many in flight; codes in other answers."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import asdict, dataclass, field

from benchmarks.gpu.http import Client, body
from hunyuan_ocr.engines.isolation import CodedPage, contains, new_pages

MAX_TOKENS = 96


@dataclass(slots=True)
class Apart:
    """`own_ratio`: own codes read together, over those that are read together or alone."""

    pages: int
    in_flight: int
    seconds: float
    statuses: dict[str, int]
    codes: int
    own_together: int
    own_readable: int
    own_ratio: float
    foreign: int
    pages_with_foreign: int
    pages_reread_alone: int
    foreign_alone: int
    sizes: dict[str, int]
    examples: list[dict[str, object]] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


async def measure(client: Client, count: int, in_flight: int, seed: int = 5) -> Apart:
    """Read `count` pages, `in_flight` at a time, and alone those with a code missing."""
    pages = await asyncio.to_thread(new_pages, count, random.Random(seed), [])
    owner = {code: index for index, page in enumerate(pages) for code in page.codes}
    gate = asyncio.Semaphore(in_flight)
    statuses: Counter[str] = Counter()

    async def read(page: CodedPage) -> str:
        async with gate:
            answer = await client.chat(body(page.image, max_tokens=MAX_TOKENS))
        statuses[str(answer.status or answer.error)] += 1
        return answer.text

    began = time.perf_counter()
    answers = await asyncio.gather(*map(read, pages))
    seconds = time.perf_counter() - began

    def foreign(index: int, text: str) -> list[str]:
        return [code for code, of in owner.items() if of != index and contains(text, code)]

    leaks = {i: found for i, text in enumerate(answers) if (found := foreign(i, text))}
    missing = {
        i: [code for code in page.codes if not contains(answers[i], code)]
        for i, page in enumerate(pages)
    }
    missing = {i: codes for i, codes in missing.items() if codes}
    codes = sum(len(page.codes) for page in pages)
    together = codes - sum(map(len, missing.values()))
    unreadable = foreign_alone = 0
    for index, lost in missing.items():
        alone = await read(pages[index])
        unreadable += sum(not contains(alone, code) for code in lost)
        foreign_alone += len(foreign(index, alone))
    readable = codes - unreadable
    examples: list[dict[str, object]] = [
        {"page": i, "own": list(pages[i].codes), "answer": answers[i], "foreign": found}
        for i, found in list(leaks.items())[:5]
    ] + [
        {"page": i, "own": list(pages[i].codes), "answer": answers[i], "missing": lost}
        for i, lost in list(missing.items())[:5]
        if i not in leaks
    ]
    return Apart(
        count, in_flight, round(seconds, 2), dict(statuses), codes, together, readable,
        round(together / readable, 5) if readable else 0.0, sum(map(len, leaks.values())),
        len(leaks), len(missing), foreign_alone,
        dict(Counter(f"{page.width}x{page.height}" for page in pages)), examples,
    )  # fmt: skip
