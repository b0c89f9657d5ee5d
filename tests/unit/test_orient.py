"""Which way up a page is: upright pages stay as they are, others are set right.

`make figure NAME=orientation` measures the same over hundreds of pages.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

from benchmarks.orientation import columns, inverted, shapes, single_line
from hunyuan_ocr.documents import orient
from tests.corpus import KINDS, pages

# The models let their thread take denormal numbers for zero, which would fail other tests.
_models_thread = ThreadPoolExecutor(1)

_CLOCKWISE = {
    90: Image.Transpose.ROTATE_270,
    180: Image.Transpose.ROTATE_180,
    270: Image.Transpose.ROTATE_90,
}


def turn_needed(image: Image.Image) -> int:
    return _models_thread.submit(orient.turn_needed, image).result()


@pytest.mark.parametrize("kind", KINDS)
def test_upright_pages_stay_as_they_are(kind: str) -> None:
    assert [turn_needed(page.image) for page in pages(kind, 2, seed=3)] == [0] * 2


@pytest.mark.parametrize("draw", [columns, inverted, single_line, shapes])
def test_unusual_pages_stay_as_they_are(draw: Callable[[random.Random], Image.Image]) -> None:
    assert [turn_needed(draw(random.Random(seed))) for seed in range(2)] == [0] * 2


@pytest.mark.parametrize("lies", _CLOCKWISE)
@pytest.mark.parametrize("kind", ["zh", "en", "invoice", "table", "skew", "noise", "phone"])
def test_pages_that_lie_are_set_upright(kind: str, lies: int) -> None:
    turned = [page.image.transpose(_CLOCKWISE[lies]) for page in pages(kind, 1, seed=3)]
    assert [turn_needed(image) for image in turned] == [360 - lies]


@pytest.mark.parametrize("size", [(1, 1), (10, 8), (2000, 3), (3, 2000)])
def test_pages_of_any_size_have_a_way_up(size: tuple[int, int]) -> None:
    assert turn_needed(Image.new("RGB", size, "white")) == 0
    assert turn_needed(Image.effect_noise(size, 60).convert("RGB")) == 0
