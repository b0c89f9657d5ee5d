from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from loadtest.pages import Kind, PagesUnusable, draw_pages, folder_pages, read_mix


def test_a_mix_has_sizes_lines_and_shares() -> None:
    assert read_mix("1024x768@24=0.7, 640x480=0.3") == [
        Kind(1024, 768, 24, 0.7),
        Kind(640, 480, 14, 0.3),
    ]


@pytest.mark.parametrize("text", ["", "1024", "1024x", "10x10", "64x64=0", "64x64@-1", "64x64@few"])
def test_what_is_no_mix_is_refused(text: str) -> None:
    with pytest.raises(PagesUnusable):
        read_mix(text)


def test_every_page_is_another_and_they_keep_to_the_mix() -> None:
    pages = draw_pages(read_mix("64x64=3,96x64=1"), 60)
    assert len({page.content for page in pages}) == 60
    sizes = Counter(Image.open(io.BytesIO(page.content)).size for page in pages)
    assert sizes.keys() == {(64, 64), (96, 64)}
    assert sizes[64, 64] == pytest.approx(45, abs=12)


def test_the_same_seed_draws_the_same_pages() -> None:
    mix = read_mix("64x64")
    assert draw_pages(mix, 3) == draw_pages(mix, 3)
    assert draw_pages(mix, 3) != draw_pages(mix, 3, seed=1)


def test_more_lines_are_more_ink() -> None:
    few, many = (draw_pages(read_mix(f"320x320@{n}"), 1)[0] for n in (1, 9))
    assert len(many.content) > 1.2 * len(few.content)


def test_a_folder_is_sent_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "b.PNG").write_bytes(b"png")
    (tmp_path / "a.pdf").write_bytes(b"pdf")
    (tmp_path / "notes.txt").write_text("no page")
    assert [(page.content, page.media_type) for page in folder_pages(tmp_path)] == [
        (b"pdf", "application/pdf"),
        (b"png", "image/png"),
    ]
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(PagesUnusable, match="no image"):
        folder_pages(empty)
