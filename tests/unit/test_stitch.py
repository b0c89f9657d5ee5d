"""Pages read in parts: each line once, in order, and a restart voids no part that is done."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hunyuan_ocr.documents.document import PageSize, PreparedImage, PreparedPage, PreparedTile
from hunyuan_ocr.documents.geometry import Placement, bounds, rectangle
from hunyuan_ocr.engines.base import Line, TokenUsage
from hunyuan_ocr.recognise import OnText, Recognition, TextEvent, TextPiece, TextRestart
from hunyuan_ocr.stitch import read_page, stitch_texts

WIDTH = 100


def tall(*spans: tuple[int, int]) -> PreparedPage:
    tiles = tuple(
        PreparedTile(
            PreparedImage(str(at).encode(), "image/png", WIDTH, end - start),
            Placement(offset_y=-start),
            (0, start, WIDTH, end),
        )
        for at, (start, end) in enumerate(spans)
    )
    return PreparedPage(tiles, PageSize(WIDTH, spans[-1][1]))


def wide(*spans: tuple[int, int]) -> PreparedPage:
    tiles = tuple(
        PreparedTile(
            PreparedImage(str(at).encode(), "image/png", end - start, WIDTH),
            Placement(offset_x=-start),
            (start, 0, end, WIDTH),
        )
        for at, (start, end) in enumerate(spans)
    )
    return PreparedPage(tiles, PageSize(spans[-1][1], WIDTH))


def answer(
    text: str = "", lines: Sequence[Line] = (), reason: str = "stop", warnings: tuple[str, ...] = ()
) -> Recognition:
    text = text or "\n".join(line.text for line in lines)
    usage = TokenUsage(100, 7)
    return Recognition(text, tuple(lines), None, reason, usage, warnings, 1)  # type: ignore[arg-type]


def line(text: str, top: float, bottom: float, left: float = 0, right: float = WIDTH) -> Line:
    return Line(text, rectangle(left, top, right, bottom))


async def read(
    page: PreparedPage, *answers: Recognition, on_text: OnText | None = None
) -> Recognition:
    async def of_tile(image: PreparedImage, hear: OnText | None) -> Recognition:
        told = answers[int(image.data)]
        if hear is not None:
            if "retried" in told.warnings:
                await hear(TextPiece("rubbish"))
                await hear(TextRestart("repetition"))
            await hear(TextPiece(told.text))
        return told

    return await read_page(page, of_tile, "\n", on_text)


async def test_parts_cut_between_lines_follow_each_other() -> None:
    whole = await read(
        tall((0, 100), (100, 200)),
        answer(lines=[line("a", 10, 30)]),
        answer(lines=[line("b", 10, 30)], reason="length", warnings=("truncated",)),
    )
    assert whole.text == "a\nb"
    assert [bounds(each.polygon)[1] for each in whole.lines] == [10, 110]
    assert (whole.finish_reason, whole.warnings) == ("length", ("truncated",))
    assert (whole.usage, whole.attempts) == (TokenUsage(200, 14), 2)


async def test_a_line_that_one_part_cuts_is_taken_from_the_other() -> None:
    whole = await read(
        tall((0, 100), (60, 200)),
        answer(lines=[line("one", 20, 40), line("two", 62, 82), line("thr–", 90, 100)]),
        answer(lines=[line("two", 2, 22), line("three", 29, 50), line("four", 70, 90)]),
    )
    assert whole.text == "one\ntwo\nthree\nfour"


async def test_what_the_next_part_has_only_the_end_of_is_not_repeated() -> None:
    whole = await read(
        tall((0, 100), (60, 200)),
        answer(lines=[line("two", 50, 75)]),
        answer(lines=[line("~", 0, 14), line("three", 40, 60)]),
    )
    assert whole.text == "two\nthree"


async def test_equal_lines_beside_and_below_each_other_stay() -> None:
    whole = await read(
        tall((0, 100), (60, 200)),
        answer(
            lines=[line("0", 62, 78, 0, 40), line("0", 62, 78, 60, 100), line("0", 80, 96, 0, 40)]
        ),
        answer(
            lines=[line("0", 2, 18, 0, 40), line("0", 2, 18, 60, 100), line("0", 20, 36, 0, 40)]
        ),
    )
    assert [each.text for each in whole.lines] == ["0", "0", "0"]


async def test_halves_of_a_line_are_joined() -> None:
    whole = await read(
        wide((0, 200), (150, 400)),
        answer(
            lines=[
                line("the quick brown f", 10, 30, 5, 200),
                line("pack my box wi", 50, 70, 5, 200),
            ]
        ),
        answer(lines=[line("'own fox jumps", 10, 30, 0, 240), line("x with jugs", 50, 70, 0, 180)]),
    )
    assert whole.text == "the quick brown fox jumps\npack my box with jugs"
    assert bounds(whole.lines[0].polygon) == (5, 10, 390, 30)


async def test_halves_of_a_line_that_repeats_itself_lose_nothing() -> None:
    text = " ".join(f"alpha {n:02d} delta {n:02d}" for n in range(8))
    pitch = 400 / len(text)
    first, second = round(230 / pitch), round(150 / pitch)
    whole = await read(
        wide((0, 230), (150, 400)),
        answer(lines=[line(text[:first], 10, 30, 0, 230)]),
        answer(lines=[line(text[second:], 10, 30, 0, 250)]),
    )
    assert whole.text == text


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("one\ntwo\nthree\nfo~r", "thre\nthree\nfour\nfive", "one\ntwo\nthree\nfour\nfive"),
        ("one\ntwo", "three\nfour", "one\ntwo\nthree\nfour"),
        ("", "one", "one"),
        ("one", "", "one"),
        ("12", "12", "12"),
        ("N    T\nA    B", "C    D\nE    F", "N    T\nA    B\nC    D\nE    F"),
        (
            "alpha beta\nthe cat sat on it",
            "gamma delta\nsee the cat go on",
            "alpha beta\nthe cat sat on it\ngamma delta\nsee the cat go on",
        ),
        ("one\nOkay\nOkay\nOkay", "Okay\nlast", "one\nOkay\nOkay\nOkay\nlast"),
        ("one\nOkay\nOkay\nOkay", "Okay\nOkay\nlast", "one\nOkay\nOkay\nOkay\nlast"),
    ],
)
def test_texts_without_places_are_joined_by_what_both_say(
    before: str, after: str, expected: str
) -> None:
    assert stitch_texts(before, after, "\n") == expected


async def test_a_restart_voids_its_part_alone() -> None:
    heard: list[TextEvent] = []

    async def hear(event: TextEvent) -> None:
        heard.append(event)

    page = tall((0, 100), (100, 200))
    whole = await read(page, answer("one"), answer("two", warnings=("retried",)), on_text=hear)
    restart = max(at for at, event in enumerate(heard) if isinstance(event, TextRestart))
    said = "".join(event.text for event in heard[restart:] if isinstance(event, TextPiece))
    assert said == whole.text == "one\ntwo"
