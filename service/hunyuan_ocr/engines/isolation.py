"""The isolation self-test: does any caller get a word of another caller's page?

Pages of different sizes, each carrying random codes of its own, are read together. An answer with
another page's code is a leak; so is the loss of own codes that the page gives when read alone,
since rows shifted into a neighbour are missing where they belong. The verdict `isolated` needs
proof that enough images did share an encoder step: without that nothing was tested, and of a few
the leak can spare every code.

No I/O here: reading a page and scraping the engine's metrics are callables that the caller brings.
"""

from __future__ import annotations

import asyncio
import io
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal

from PIL import Image, ImageDraw, ImageFont

Verdict = Literal["isolated", "leaking", "inconclusive", "unreadable"]

ALPHABET = "0123456789"
CODE_LENGTH = 8
MIN_DISTANCE = 4  # between any two codes: a misread character or two never makes one another
TOLERANCE = 1  # characters by which a line may differ from a code and still be it

WIDTHS_PX = (256, 320, 384, 448, 512)
LINES = (2, 3)
FONT_PX = 24
PITCH_PX = 40
FONT = Path(__file__).with_name("data") / "isolation-sans.ttf"

OWN_RATIO = 0.99  # not 1: greedy decoding on a GPU depends on the batch in its last bits
CLEAR_LOSS = 0.9  # no batch does that to an honest engine: no need to read on
# Images known to have been encoded with another before an engine is cleared. Of those that the
# leaking vLLM 0.32.0 encoded together, about one in ten came back whole.
ENCODED_TOGETHER = 6
READABLE = 0.5  # below this share of codes read alone, the answers prove nothing


@dataclass(frozen=True, slots=True)
class CodedPage:
    """A page to be read. `image` is a PNG of `width` x `height` pixels, one code a line."""

    image: bytes
    width: int
    height: int
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IsolationReport:
    """`foreign` counts codes found in answers to other pages. `own_ratio` is own codes read
    together over own codes read alone. `seconds` is wall-clock time, `detail` one sentence."""

    verdict: Verdict
    pages: int
    foreign: int
    own_ratio: float
    seconds: float
    detail: str


# --- pages and codes -----------------------------------------------------------------------------


def distance(a: str, b: str) -> int:
    """Characters that differ, place by place; both have the same length."""
    return sum(x != y for x, y in zip(a, b, strict=True))


def new_code(rng: random.Random, taken: Sequence[str], page: Sequence[str]) -> str:
    """A code at least MIN_DISTANCE from every one in `taken`.

    No two digits follow each other twice within `page` and the code: small models lose their place
    at a repeat, and a test that misreads its pages proves less.
    """
    seen = {pair for code in page for pair in _pairs(code)}
    while True:
        code = "".join(rng.choices(ALPHABET, k=CODE_LENGTH))
        pairs = _pairs(code)
        fresh = len(set(pairs)) == len(pairs) and seen.isdisjoint(pairs)
        if fresh and all(distance(code, other) >= MIN_DISTANCE for other in taken):
            return code


def _pairs(code: str) -> list[str]:
    return [a + b for a, b in pairwise(code)]


def draw(codes: Sequence[str], width: int, rng: random.Random) -> CodedPage:
    """Black on white, one code a line, each at a random indent."""
    font = ImageFont.truetype(str(FONT), FONT_PX)
    height = -(-(len(codes) * PITCH_PX + 16) // 32) * 32
    image = Image.new("L", (width, height), 255)
    pen = ImageDraw.Draw(image)
    for line, code in enumerate(codes):
        room = int(width - pen.textlength(code, font=font)) - 16
        pen.text((8 + rng.randint(0, max(0, room)), 8 + line * PITCH_PX), code, fill=0, font=font)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return CodedPage(buffer.getvalue(), width, height, tuple(codes))


def new_pages(count: int, rng: random.Random, taken: Sequence[str]) -> list[CodedPage]:
    """`count` pages of mixed sizes, no code of which is near another or one in `taken`."""
    used, pages = list(taken), []
    for _ in range(count):
        codes: list[str] = []
        for _ in range(rng.choice(LINES)):
            codes.append(new_code(rng, used, codes))
            used.append(codes[-1])
        pages.append(draw(codes, rng.choice(WIDTHS_PX), rng))
    return pages


def contains(answer: str, code: str) -> bool:
    """Whether `code` stands in `answer`, give or take TOLERANCE characters."""
    runs = re.findall(rf"\w{{{CODE_LENGTH},}}", answer)
    return any(
        distance(run[at : at + CODE_LENGTH], code) <= TOLERANCE
        for run in runs
        for at in range(len(run) - CODE_LENGTH + 1)
    )


# --- the test ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Tally:
    """What the rounds so far have shown."""

    pages: list[CodedPage] = field(default_factory=list)
    foreign: int = 0
    together: int = 0  # own codes read with others in flight
    alone: int = 0  # own codes that can be read: those, and the ones read only alone
    encoded_together: int = 0

    @property
    def codes(self) -> int:
        return sum(len(page.codes) for page in self.pages)

    @property
    def own_ratio(self) -> float:
        return self.together / self.alone if self.alone else 0.0

    @property
    def readable(self) -> bool:
        return self.alone >= READABLE * self.codes

    def count_foreign(self, page: CodedPage, answer: str) -> None:
        others = (code for other in self.pages if other is not page for code in other.codes)
        self.foreign += sum(contains(answer, code) for code in others)


async def _read_together(
    read: Callable[[CodedPage], Awaitable[str]], pages: Sequence[CodedPage]
) -> list[str]:
    async def one(page: CodedPage) -> str:
        return await read(page)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(page)) for page in pages]
    except BaseExceptionGroup as failures:  # the others are cancelled by now
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def _round(
    tally: _Tally,
    pages: Sequence[CodedPage],
    read: Callable[[CodedPage], Awaitable[str]],
    encoded_together: Callable[[], Awaitable[int]],
) -> None:
    """Read `pages` together, and those with a missing code once more alone.

    Not so once a foreign code was seen: the verdict is clear, and what is missing counts as lost.
    """
    await encoded_together()  # from here on
    answers = await _read_together(read, pages)
    tally.encoded_together += await encoded_together()
    tally.pages.extend(pages)
    for page, answer in zip(pages, answers, strict=True):
        tally.count_foreign(page, answer)
    for page, answer in zip(pages, answers, strict=True):
        missing = [code for code in page.codes if not contains(answer, code)]
        tally.together += len(page.codes) - len(missing)
        tally.alone += len(page.codes)
        if missing and not tally.foreign:
            alone = await read(page)
            tally.count_foreign(page, alone)
            tally.alone -= sum(not contains(alone, code) for code in missing)


def _judge(tally: _Tally) -> tuple[Verdict, str]:
    lost = tally.alone - tally.together
    if tally.foreign:
        return "leaking", f"{tally.foreign} codes came back in answers to other pages"
    if not tally.readable:
        return "unreadable", f"only {tally.alone} of {tally.codes} codes were read even alone"
    if tally.own_ratio < OWN_RATIO:
        return "leaking", f"{lost} of {tally.alone} own codes were lost with others in flight"
    if tally.encoded_together < ENCODED_TOGETHER:
        known = f"{tally.encoded_together} of {len(tally.pages)} images are"
        return "inconclusive", f"only {known} known to have shared an encoder step"
    return "isolated", f"{tally.codes} codes, each in the answer to its own page"


async def check_isolation(
    read: Callable[[CodedPage], Awaitable[str]],
    encoded_together: Callable[[], Awaitable[int]],
    rng: random.Random,
    clock: Callable[[], float],
    *,
    concurrency: int,
    min_pages: int = 24,
    limit_s: float = 8.0,
) -> IsolationReport:
    """Read coded pages, `concurrency` at a time, until the verdict is clear or time is up.

    Clear is a foreign code, pages not even read alone, or isolation or great loss over `min_pages`.
    A few lost codes are not: a doubtful character can fall either way with the batch.

    `read` gives the engine's text of a page. `encoded_together` tells how many of the pages read
    since its last call are known to have shared an encoder step with one before them; it is called
    just before and just after each round. No round begins later than `limit_s` after the start, by
    `clock` in seconds.

    Raises:
        Whatever `read` or `encoded_together` raises; other reads of that round are cancelled.
    """
    began = clock()
    tally = _Tally()
    while True:
        taken = [code for page in tally.pages for code in page.codes]
        pages = await asyncio.to_thread(new_pages, concurrency, rng, taken)
        await _round(tally, pages, read, encoded_together)
        clear = _judge(tally)[0] == "isolated" or tally.own_ratio < CLEAR_LOSS
        enough = clear and len(tally.pages) >= min_pages
        if enough or tally.foreign or not tally.readable or clock() - began >= limit_s:
            break
    verdict, detail = _judge(tally)
    return IsolationReport(
        verdict, len(tally.pages), tally.foreign, tally.own_ratio, clock() - began, detail
    )


# --- how many shared a step? ----------------------------------------------------------------------

_STEP_TOKENS = re.compile(
    r'^vllm:iteration_tokens_total_(bucket|sum)\{(?:[^}]*?le="([^"]+)")?[^}]*\}\s+(\S+)',
    re.MULTILINE,
)


def _step_tokens(metrics: str) -> tuple[dict[float, float], float]:
    """Tokens per engine step, all engines: {upper bound: steps up to it}, and their sum."""
    buckets: dict[float, float] = {}
    total = 0.0
    for kind, bound, value in _STEP_TOKENS.findall(metrics):
        if kind == "sum":
            total += float(value)
        else:
            buckets[float(bound)] = buckets.get(float(bound), 0.0) + float(value)
    return buckets, total


def prefills_together(
    before: str, after: str, page_tokens: Sequence[int], *, step_budget_tokens: int = 2048
) -> int:
    """How many pages read between two scrapes of /metrics were surely encoded in another's step.

    vLLM's histogram `vllm:iteration_tokens_total` takes, for every step, the decoded tokens plus
    the prompt tokens of each request whose prefill ended there. A step that ended one of our
    prefills therefore counts at least as many as our shortest prompt; as many pages as there are
    more than such steps ended in a step that ended another's. Neither can have been encoded in an
    earlier step while all tokens together fit into `step_budget_tokens`
    (`--max-num-batched-tokens`), as no prompt is chunked then; beyond it one prompt of each step
    may have been.

    Other callers' steps only raise the count of steps, so they can hide a shared one but not feign
    it. `page_tokens`: prompt tokens of each page, as in the answers' usage.
    """
    (old, old_sum), (new, new_sum) = _step_tokens(before), _step_tokens(after)
    if len(page_tokens) < 2 or not new or new_sum - old_sum < sum(page_tokens):
        return 0  # alone, no such metric, or the engine was restarted in between
    below = max((bound for bound in new if bound < min(page_tokens)), default=None)
    if below is None:
        return 0
    every = float("inf")
    steps = (new[every] - new[below]) - (old.get(every, 0.0) - old.get(below, 0.0))
    fits = new_sum - old_sum <= step_budget_tokens  # then no step in between was full
    return max(0, len(page_tokens) - int(steps) * (1 if fits else 2))
