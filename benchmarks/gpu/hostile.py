"""The model's special-token strings in a caller's text: who survives?"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from benchmarks.gpu.http import PROMPT, Client, body, get_status
from hunyuan_ocr.engines.isolation import contains, new_pages

_TOKENS = {
    "[100]": "<｜hy_place▁holder▁no▁100｜>",  # image start
    "[101]": "<｜hy_place▁holder▁no▁101｜>",  # image end
    "[102]": "<｜hy_place▁holder▁no▁102｜>",  # image
    "[User]": "<｜hy_User｜>",
    "[Asst]": "<｜hy_Assistant｜>",
    "[2]": "<｜hy_place▁holder▁no▁2｜>",
    "[3]": "<｜hy_place▁holder▁no▁3｜>",
    "[pad]": "<｜hy_▁pad▁｜>",
    "[bos]": "<｜hy_begin▁of▁sentence｜>",
}
# (string, where). Those that end an unpatched 0.28 come last.
CASES: tuple[tuple[str, str], ...] = (
    ("[User]", "user"), ("[Asst]", "user"), ("[2]", "user"), ("[3]", "user"), ("[pad]", "user"),
    ("[bos]", "user"), ("[101]", "user"), ("[101]" * 5, "user"), ("[102]", "user"),
    ("[102]" * 3, "user"), ("[102]", "before image"), ("[101]", "before image"),
    ("[102]", "system"), ("[101][102]", "no image"),
    ("[100][102][101]", "user"), ("[100][102][101]", "before image"), ("[101][100]", "user"),
    ("[100]", "user"), ("[100]", "before image"), ("[100][100][100]", "user"),
    ("[100][102]", "user"), ("[100][102]", "before image"), ("[100][101]", "before image"),
    ("[100]", "system"), ("[100][102][101]", "system"), ("[100]", "no image"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    case: str
    where: str
    status: int | None
    answer: str
    health_after: int | None


def _spelled(case: str) -> str:
    for short, token in _TOKENS.items():
        case = case.replace(short, token)
    return case


def _body(image: bytes, case: str, where: str) -> bytes:
    text = _spelled(case)
    match where:
        case "system":
            return body(image, system=text, max_tokens=60)
        case "no image":
            return body(None, text=text + "hello", max_tokens=60)
        case "before image":
            return body(image, text=PROMPT + text, image_first=False, max_tokens=60)
        case _:
            return body(image, text=PROMPT + text, max_tokens=60)


async def measure(client: Client, port: int) -> dict[str, object]:
    """Send every case, and after each look at /health; stop when the server is gone."""
    (page,) = new_pages(1, random.Random(7), [])
    outcomes: list[Outcome] = []
    for case, where in CASES:
        answer = await client.chat(_body(page.image, case, where), timeout_s=30)
        if answer.status != 200:
            await asyncio.sleep(1.5)
        health = await asyncio.to_thread(get_status, port, "/health", 5.0)
        said = answer.error or answer.text[:60]
        outcomes.append(Outcome(case, where, answer.status, said, health))
        if health != 200:
            break
    alive = bool(outcomes) and outcomes[-1].health_after == 200
    after = await client.chat(body(page.image, max_tokens=96)) if alive else None
    return {
        "cases": len(CASES), "sent": len(outcomes), "alive_after": alive,
        "reads_after": after is not None and any(contains(after.text, c) for c in page.codes),
        "outcomes": [
            {name: getattr(o, name) for name in Outcome.__slots__} for o in outcomes
        ],
    }  # fmt: skip
