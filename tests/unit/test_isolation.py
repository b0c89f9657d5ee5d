"""The isolation self-test against made-up engines: it accuses every leak and no honest engine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from io import BytesIO
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hunyuan_ocr.engines.isolation import (
    ENCODED_TOGETHER,
    MIN_DISTANCE,
    CodedPage,
    IsolationReport,
    check_isolation,
    contains,
    distance,
    new_pages,
    prefills_together,
)

seeds = st.integers(0, 2**32)


class Engine:
    """Answers once every page in flight is there; `answer` sees the batch and the page's place."""

    def __init__(self, answer: Callable[[Sequence[CodedPage], int], str]) -> None:
        self.answer = answer
        self.batch: list[CodedPage] = []

    async def read(self, page: CodedPage) -> str:
        place = len(self.batch)
        self.batch.append(page)
        await asyncio.sleep(0)  # the others of this burst arrive
        batch = self.batch
        await asyncio.sleep(0)
        self.batch = []
        return self.answer(batch, place)


def honest(batch: Sequence[CodedPage], place: int) -> str:
    return "\n".join(batch[place].codes)


def nearsighted(batch: Sequence[CodedPage], place: int) -> str:
    """Gets one character of every code wrong, in company or alone."""
    return "\n".join("7" + code[1:] for code in batch[place].codes)


async def many() -> int:
    return ENCODED_TOGETHER


async def none() -> int:
    return 0


def one_a_round(rounds: int) -> Callable[[], Awaitable[int]]:
    """In each of the first rounds two images share a step, later none do."""
    asked = 0

    async def encoded_together() -> int:
        nonlocal asked
        asked += 1
        return int(asked % 2 == 0 and asked <= 2 * rounds)

    return encoded_together


async def examine(
    answer: Callable[[Sequence[CodedPage], int], str],
    seed: int = 1,
    together: Callable[[], Awaitable[int]] = many,
    concurrency: int = 8,
) -> IsolationReport:
    return await check_isolation(
        Engine(answer).read, together, random.Random(seed), ticking(), concurrency=concurrency
    )


def ticking(step_s: float = 0.5) -> Callable[[], float]:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += step_s
        return now

    return clock


@given(seed=seeds, concurrency=st.integers(2, 16))
@settings(max_examples=15, deadline=None)
async def test_an_honest_engine_is_never_accused(seed: int, concurrency: int) -> None:
    report = await examine(honest, seed, concurrency=concurrency)
    assert (report.verdict, report.foreign, report.own_ratio) == ("isolated", 0, 1.0)
    assert report.pages >= 24


@given(seed=seeds)
@settings(max_examples=15, deadline=None)
async def test_misread_characters_are_not_taken_for_a_leak(seed: int) -> None:
    report = await examine(nearsighted, seed)
    assert (report.verdict, report.foreign) == ("isolated", 0)


@given(seed=seeds, victim=st.integers(1, 7), source=st.integers(0, 7), line=st.integers(0, 1))
@settings(max_examples=25, deadline=None)
async def test_one_foreign_code_in_one_answer_is_a_leak(
    seed: int, victim: int, source: int, line: int
) -> None:
    def leak(batch: Sequence[CodedPage], place: int) -> str:
        own = list(batch[place].codes)
        if place == victim and source != victim and len(batch) > 1:
            own[-1] = batch[source].codes[line]
        return "\n".join(own)

    report = await examine(leak, seed)
    assert report.verdict == ("leaking" if source != victim else "isolated")


@given(seed=seeds)
@settings(max_examples=15, deadline=None)
async def test_answers_cut_short_in_company_are_a_leak_without_a_foreign_code(seed: int) -> None:
    def cut(batch: Sequence[CodedPage], place: int) -> str:
        return "\n".join(batch[place].codes[: 1 if place and len(batch) > 1 else None])

    report = await examine(cut, seed)
    assert (report.verdict, report.foreign) == ("leaking", 0)
    assert report.own_ratio < 0.99


async def test_a_code_of_an_earlier_round_is_a_leak_too() -> None:
    first: list[str] = []

    def stale(batch: Sequence[CodedPage], place: int) -> str:
        if not first:
            first.append(batch[0].codes[0])
        return honest(batch, place) if first[0] in batch[0].codes else first[0]

    assert (await examine(stale)).verdict == "leaking"


@pytest.mark.parametrize("together", [none, one_a_round(ENCODED_TOGETHER - 1)])
async def test_without_enough_images_in_shared_steps_nothing_is_shown(
    together: Callable[[], Awaitable[int]],
) -> None:
    report = await examine(honest, together=together, concurrency=2)
    assert report.verdict == "inconclusive"
    assert report.seconds < 20


async def test_few_images_a_round_are_added_up() -> None:
    report = await examine(honest, together=one_a_round(ENCODED_TOGETHER))
    assert report.verdict == "isolated"
    assert report.pages == 8 * ENCODED_TOGETHER


async def test_a_model_that_reads_nothing_is_called_unreadable() -> None:
    report = await examine(lambda batch, place: "the of and")
    assert (report.verdict, report.own_ratio) == ("unreadable", 0.0)


async def test_a_failing_engine_ends_the_test_with_its_own_error() -> None:
    cancelled = 0

    async def read(page: CodedPage) -> str:
        nonlocal cancelled
        if page.width % 64 == 0 and not cancelled:
            await asyncio.sleep(0)
            raise ConnectionResetError("engine is gone")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled += 1
            raise
        return ""

    with pytest.raises(ConnectionResetError, match="engine is gone"):
        await check_isolation(read, many, random.Random(3), lambda: 0.0, concurrency=8)


@given(seed=seeds)
@settings(max_examples=15, deadline=None)
def test_codes_are_far_apart_and_pages_differ_in_size(seed: int) -> None:
    pages = new_pages(16, random.Random(seed), [])
    codes = [code for page in pages for code in page.codes]
    assert all(distance(a, b) >= MIN_DISTANCE for a, b in combinations(codes, 2))
    assert len({(page.width, page.height) for page in pages}) > 3
    with Image.open(BytesIO(pages[0].image)) as image:
        assert image.size == (pages[0].width, pages[0].height)


def test_a_code_is_found_within_a_line_and_with_one_character_wrong() -> None:
    assert contains("No 12345678.", "12345678")
    assert contains("x\n912345678\n", "12345679")
    assert not contains("12345600", "12345678")
    assert not contains("1234 5678", "12345678")


# --- how many shared a step? ----------------------------------------------------------------------

BOUNDS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


def scrape(steps: Sequence[int]) -> str:
    """/metrics after engine steps of so many tokens."""
    name, labels = "vllm:iteration_tokens_total", 'engine="0",model_name="m"'
    lines = [
        f'{name}_bucket{{engine="0",le="{float(bound)}",model_name="m"}} '
        f"{float(sum(step <= bound for step in steps))}"
        for bound in BOUNDS
    ]
    lines += [
        f'{name}_bucket{{engine="0",le="+Inf",model_name="m"}} {float(len(steps))}',
        f"{name}_count{{{labels}}} {float(len(steps))}",
        f"{name}_sum{{{labels}}} {float(sum(steps))}",
    ]
    return "# TYPE vllm:iteration_tokens_total histogram\n" + "\n".join(lines) + "\n"


EARLIER = [70, 1, 1, 140, 2]


def together(steps: Sequence[int], pages: Sequence[int]) -> int:
    return prefills_together(scrape(EARLIER), scrape([*EARLIER, *steps]), pages)


def test_pages_prefilled_together_share_a_step() -> None:
    assert together([101, 61 + 49 + 1, 3, 3, 3], [101, 61, 49]) == 1
    assert together([101 + 61 + 49, 3, 3, 3], [101, 61, 49]) == 2


def test_pages_prefilled_one_by_one_do_not() -> None:
    assert not together([101, 1, 62, 2, 51, 3, 3], [101, 61, 49])


def test_other_callers_hide_a_shared_step_but_never_feign_one() -> None:
    assert not together([101, 110, 700], [101, 61, 49])
    assert not together([101, 700, 61, 49], [101, 61, 49])


@pytest.mark.parametrize("metrics", ["", "vllm:num_requests_running 1.0\n", scrape([])])
def test_an_engine_without_the_histogram_or_restarted_shows_nothing(metrics: str) -> None:
    assert not prefills_together(scrape(EARLIER), metrics, [101, 61, 49])


def test_one_page_shares_with_nobody() -> None:
    assert not together([101, 1, 1], [101])


@given(
    batches=st.lists(
        st.lists(st.integers(40, 400), min_size=1, max_size=4), min_size=1, max_size=6
    ),
    decodes=st.lists(st.integers(1, 16), max_size=20),
)
def test_no_more_are_said_to_have_shared_a_step_than_did(
    batches: list[list[int]], decodes: list[int]
) -> None:
    steps = [sum(batch) for batch in batches] + decodes
    pages = [page for batch in batches for page in batch]
    assert together(steps, pages) <= sum(len(batch) - 1 for batch in batches)
