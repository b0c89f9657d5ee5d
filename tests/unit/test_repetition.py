"""Loops are caught, the repeats that pages have are not, and looking for them costs nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hunyuan_ocr.tasks.repetition import MIN_RUN, RepetitionGuard
from tests.timing import is_linear

CHARACTERS = "abcdefghijklmnopqrstuvwxyz    0123456789,.的一是在不了有和人这中大为上个国我以要"
# A loop is caught within so much text: what its unit must cover, and a look's distance.
CAUGHT_WITHIN = 16_000


def prose(seed: int, size: int) -> str:
    rng = random.Random(seed)
    return "".join(rng.choice(CHARACTERS) for _ in range(size))


def read(text: str, piece: int = 3) -> tuple[bool, str]:
    """Whether the guard called it endless, and what it kept."""
    guard = RepetitionGuard()
    for start in range(0, len(text), piece):
        if guard.feed(text[start : start + piece]):
            return True, guard.trimmed()
    return False, guard.trimmed()


def endless(unit: str) -> str:
    return unit * (CAUGHT_WITHIN // len(unit) + 1)


LOOPS = {
    "character": endless("哈"),
    "dots": endless("."),
    "phrase": endless("谢谢大家"),
    "line of 400": endless(prose(1, 399) + "\n"),
    "block of lines": endless("".join(prose(n, 80) + "\n" for n in range(9))),
    "block of 2900": endless(prose(2, 2900)),
    "empty rows": endless("<tr><td></td></tr>"),
    "wide empty rows": endless("<tr>" + "<td></td>" * 40 + "</tr>\n"),
    "markdown rows": endless("| | | |\n"),
    "numbered list": "".join(f"{n}. foo\n" for n in range(1, 1200)),
    "numbered rows": "".join(f"<tr><td>{n}</td><td>备注</td></tr>" for n in range(1, 700)),
    "boxes in steps": "".join(f"text(10,{n}),(90,{n + 8})" for n in range(0, 6000, 12)),
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("before", [0, 37, 3000, 90_000])
def test_loops_are_caught_and_one_copy_kept(name: str, before: int) -> None:
    text = prose(before, before) + LOOPS[name]
    caught, kept = read(text)
    assert caught
    assert text.startswith(kept)
    assert before - 10 <= len(kept) <= before + 3000


@settings(deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 1000), st.integers(0, 2000), st.integers(1, 50))
def test_every_unit_is_caught(seed: int, size: int, before: int, piece: int) -> None:
    unit = prose(seed, size)
    text = prose(seed + 1, before) + endless(unit)
    caught, kept = read(text, piece)
    assert caught
    assert text.startswith(kept)
    assert len(kept) <= before + size


PAGES = {
    "table of contents": "".join(
        f"第{n}章 {prose(n, 9)}{'.' * (300 - n)}{n * 7}\n" for n in range(120)
    ),
    "spaced leaders": "".join(f"{prose(n, 20)}{' .' * 120} {n}\n" for n in range(80)),
    "ruled lines": ("_" * 100 + "\n") * 40,
    "one long rule": prose(1, 100) + "_" * 1200,
    "identical rows": "<table>" + "<tr><td>备用</td><td>0</td><td>0.00</td></tr>" * 40 + "</table>",
    "long identical rows": "<table>" + f"<tr><td>{prose(3, 190)}</td></tr>" * 40 + "</table>",
    "empty rows": "<table>" + "<tr><td></td><td></td></tr>" * 50 + "</table>",
    "form": "".join(f"{n}. {prose(n, 12)} □ 是 □ 否\n" for n in range(90)),
    "bare form": "□ 是 □ 否\n" * 60,
    "laughter": "哈哈哈哈哈" * 30,
    "labels": (prose(4, 30) + "\n" + prose(5, 40) + "\n") * 40,
    "numbered blanks": "".join(f"{n}. ________\n" for n in range(1, 101)),
    "code": "".join(f"    if x == {n}:\n        return {n * n}\n" for n in range(150)),
    "numbers": "".join(
        f"<tr><td>{n}</td><td>{random.Random(n).randint(0, 9999)}</td></tr>" for n in range(400)
    ),
    "separators": ("-" * 80 + "\n" + prose(6, 40) + "\n") * 20,
}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("after", [0, 700])
def test_what_pages_repeat_survives(name: str, after: int) -> None:
    text = prose(7, 200) + PAGES[name] + prose(8, after)
    assert read(text) == (False, text)


@st.composite
def repeating_pages(draw: st.DrawFn) -> str:
    """Prose with repeats between: up to 40 copies of a line, up to 1000 of a character."""
    seed = draw(st.integers(0, 10**9))
    rng = random.Random(seed)
    parts = []
    for _ in range(draw(st.integers(1, 12))):
        size = rng.choice([1, 1, 2, 5, 20, 60, 100])
        copies = rng.randint(1, 40) if size > 20 else rng.randint(1, 1000 // size)
        parts += [prose(rng.randrange(10**9), size) * copies, prose(rng.randrange(10**9), 50)]
    return "".join(parts)


@settings(deadline=None)
@given(repeating_pages())
def test_repeats_of_any_page_survive(text: str) -> None:
    assert read(text) == (False, text)


def test_short_answers_are_never_judged() -> None:
    assert read("a" * (MIN_RUN - 1)) == (False, "a" * (MIN_RUN - 1))


def test_it_stays_certain() -> None:
    guard = RepetitionGuard()
    assert guard.feed("a" * 5000)
    assert guard.feed("and now for something else")
    assert guard.trimmed() == "a"


def table() -> Iterator[str]:
    rng = random.Random(1)
    for n in count():
        yield from (f"<tr><td>{n}</td>", "<td>", f"{rng.randint(0, 9999)}", "</td></tr>\n")


def leaders() -> Iterator[str]:
    for n in count():
        yield from (prose(n, 6), "." * 8, "." * 8, "." * 8, str(n))


@pytest.mark.parametrize(
    "pieces",
    [
        [prose(n, 3) for n in range(32_000)],
        list(islice(table(), 32_000)),
        list(islice(leaders(), 32_000)),
    ],
    ids=["prose", "table", "leaders"],
)
def test_cost_grows_with_the_tokens_and_no_faster(pieces: list[str]) -> None:
    def feed(count: int) -> None:
        guard = RepetitionGuard()
        for piece in pieces[:count]:
            assert not guard.feed(piece)

    assert is_linear(feed, 32_000)
