"""The drawn pages that recognition is measured on."""

from __future__ import annotations

from itertools import islice

import pytest
from fontTools.ttLib import TTFont

from tests.corpus import KINDS, character_error_rate, pages
from tests.paper import FIXTURES


@pytest.mark.parametrize("kind", KINDS)
def test_pages_repeat_and_differ(kind: str) -> None:
    first, second = pages(kind, 2, seed=1)
    (again,) = pages(kind, 1, seed=1)
    assert again.text == first.text
    assert again.image.tobytes() == first.image.tobytes()
    assert second.text != first.text


@pytest.mark.parametrize("kind", KINDS)
def test_lines_are_where_their_ink_is(kind: str) -> None:
    (page,) = pages(kind, 1, seed=2)
    assert page.text == "\n".join(text for text, _ in page.lines)
    paper = page.image.convert("L")
    for text, (left, top, right, bottom) in page.lines:
        assert text == text.strip()
        assert 0 <= left < right <= page.image.width
        assert 0 <= top < bottom <= page.image.height
        ink = paper.crop((int(left), int(top), int(right), int(bottom)))
        assert min(ink.tobytes()) < 200


@pytest.mark.parametrize("name", ["TestHeiA", "TestHeiB"])
def test_every_character_written_has_a_glyph(name: str) -> None:
    glyphs = TTFont(FIXTURES / "fonts" / f"{name}.ttf").getBestCmap()
    sentences = (FIXTURES / "sentences_zh.txt").read_text(encoding="utf-8")
    assert {character for character in sentences if ord(character) not in glyphs} == {"\n"}


def test_error_rate_counts_characters() -> None:
    assert character_error_rate("abcd", "abcd") == 0
    assert character_error_rate("abcd", "abxd") == 0.25
    assert character_error_rate("", "ab") == 2


def test_only_width_and_runs_of_space_are_forgiven() -> None:
    assert character_error_rate("a，b １", "a,b 1") == 0
    assert character_error_rate("a，b １", "a,b 1", strict=True) == 0.4
    assert character_error_rate("one two", "one\n two") == 0
    assert character_error_rate("one two", "onetwo") == pytest.approx(1 / 7)


def test_pages_are_drawn_one_at_a_time() -> None:
    assert len(list(islice(pages("table", 10**9, seed=1), 2))) == 2
