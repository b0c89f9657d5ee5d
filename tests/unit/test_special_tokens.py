"""No text that others wrote can be tokenised as one of the model's special tokens."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hunyuan_ocr.tasks.special_tokens import neutralise, neutralise_json, restore_keys

TOKENIZERS = sorted(Path("tests/fixtures/models").glob("*/tokenizer.json"))
TOKENS = {
    "<｜hy_▁pad▁｜>",
    "<｜hy_begin▁of▁sentence｜>",
    "<｜hy_end▁of▁sentence｜>",
    "<｜hy_User｜>",
    "<｜hy_Assistant｜>",
    *(f"<｜hy_place▁holder▁no▁{number}｜>" for number in range(0, 800, 50)),
} | {
    token["content"]
    for path in TOKENIZERS
    for token in json.loads(path.read_text("utf-8"))["added_tokens"]
}
PIECES = [
    *sorted(TOKENS),
    "<",
    "<｜",
    "｜",
    "｜>",
    ">",
    "｜｜",
    " ",
    "▁",
    "hy_User",
    "总计",
    "<|pad|>",
]
NASTY = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)


@pytest.mark.parametrize("token", sorted(TOKENS))
def test_every_token_is_broken(token: str) -> None:
    safe = neutralise(f"a{token}b")
    assert token not in safe
    assert safe.replace("< ｜", "<｜") == f"a{token}b"


@settings(deadline=None)
@given(NASTY)
def test_nothing_special_is_left_and_nothing_else_changes(text: str) -> None:
    safe = neutralise(text)
    assert not any(token in safe for token in TOKENS)
    assert neutralise(safe) is safe or neutralise(safe) == safe
    assert safe.replace(" ", "") == text.replace(" ", "")
    if not re.search("<｜[^｜<>]*｜>", text):
        assert safe is text or safe == text


@pytest.mark.parametrize(
    "text", ["", "总计 <b>", "<quad><pos_12></quad><ref>", "<hy-meta>", "<|endoftext|>", "a <｜ b"]
)
def test_other_text_is_the_same_object(text: str) -> None:
    assert neutralise(text) is text or "<｜" in text
    assert neutralise(text) == text


def test_spellings_with_spaces_are_broken_too() -> None:
    assert neutralise("<｜hy_place holder no 100｜>") == "< ｜hy_place holder no 100｜>"


def test_json_keys_and_values() -> None:
    value = {"<｜hy_User｜>": ["<｜hy_▁pad▁｜>", 1, None, {"a": True}]}
    assert neutralise_json(value) == {"< ｜hy_User｜>": ["< ｜hy_▁pad▁｜>", 1, None, {"a": True}]}


def test_keys_get_the_callers_spelling_back() -> None:
    answer = {"< ｜hy_User｜>": {"< ｜hy_▁pad▁｜>": 1}, "b": [{"< ｜hy_User｜>": 2}]}
    assert restore_keys(answer, ["<｜hy_User｜>", "b"]) == {
        "<｜hy_User｜>": {"< ｜hy_▁pad▁｜>": 1},
        "b": [{"<｜hy_User｜>": 2}],
    }
    assert restore_keys(answer, ["b"]) is answer
