"""The prompts are the official ones, and callers' words in them are harmless."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hunyuan_ocr.errors import InvalidField
from hunyuan_ocr.tasks.catalogue import Generation, Task
from hunyuan_ocr.tasks.prompts import PROMPTS, TaskRequest, build_prompt, field_names
from hunyuan_ocr.tasks.special_tokens import neutralise

GENERATIONS: list[Generation] = ["1.0", "1.5"]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_task_has_a_prompt(generation: Generation) -> None:
    assert set(PROMPTS[generation]) == set(Task)


@pytest.mark.parametrize(
    ("task", "prompt"),
    [
        (Task.TEXT, "提取图中的文字。"),
        (Task.SPOTTING, "检测并识别图片中的文字，将文本坐标格式化输出。"),
        (Task.TABLE, "把图中的表格解析为HTML。"),
        (Task.LAYOUT, "按照阅读顺序解析图中的版式信息。"),
        (Task.FORMULA, "识别图片中的公式，用LaTeX格式表示。"),
        (Task.SUBTITLE, "提取图片中的字幕。"),
    ],
)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_official_wording(task: Task, prompt: str, generation: Generation) -> None:
    assert build_prompt(TaskRequest(task), generation) == prompt


@pytest.mark.parametrize(
    ("generation", "target", "ending"),
    [
        ("1.5", None, "再将文字内容翻译为英文。"),
        ("1.5", "zh", "再将文字内容翻译为中文。"),
        ("1.5", "zh-CN", "再将文字内容翻译为中文。"),
        ("1.5", "zh_TW", "再将文字内容翻译为繁体中文。"),
        ("1.5", "pt-BR", "再将文字内容翻译为葡萄牙文。"),
        ("1.5", " Klingon\n tongue ", "再将文字内容翻译为Klingon tongue。"),
    ],
)
def test_target_language(generation: Generation, target: str | None, ending: str) -> None:
    request = TaskRequest(Task.TRANSLATE, target_language=target)
    assert build_prompt(request, generation).endswith(ending)


def test_translate_of_1_0() -> None:
    assert build_prompt(TaskRequest(Task.TRANSLATE, target_language="en"), "1.0") == (
        "先提取文字，再将文字内容翻译为英文。若是文档，则其中页眉、页脚忽略。"
        "公式用latex格式表示，表格用html格式表示。"
    )


def test_fields_are_written_as_published() -> None:
    request = TaskRequest(Task.EXTRACT, fields=("单价", "Invoice No"))
    assert build_prompt(request, "1.5") == (
        "提取图片中的: ['单价', 'Invoice No'] 的字段内容，并按照 JSON 格式返回。"
    )


def test_a_schema_gives_its_property_names() -> None:
    schema: dict[str, object] = {"type": "object", "properties": {"total": {}, "date": {}}}
    assert field_names(TaskRequest(Task.EXTRACT, json_schema=schema)) == ("total", "date")
    assert "['total', 'date']" in build_prompt(TaskRequest(Task.EXTRACT, json_schema=schema), "1.0")


def test_instruction_follows_the_official_prompt_or_is_it() -> None:
    with_fields = TaskRequest(Task.EXTRACT, fields=("a",), instruction="Dates as ISO.")
    assert build_prompt(with_fields, "1.5").endswith("返回。\nDates as ISO.")
    assert (
        build_prompt(TaskRequest(Task.EXTRACT, instruction=" 输出总计的值。 "), "1.5")
        == "输出总计的值。"
    )


def test_language_hint_comes_last() -> None:
    assert build_prompt(TaskRequest(Task.TEXT, language_hint="fr"), "1.5") == (
        "提取图中的文字。\n图中的文字是法文。"
    )


@pytest.mark.parametrize("schema", [None, {}, {"properties": []}])
def test_an_extract_of_nothing_is_refused(schema: dict[str, object] | None) -> None:
    with pytest.raises(InvalidField):
        build_prompt(TaskRequest(Task.EXTRACT, json_schema=schema, instruction="  "), "1.5")


SUPPLIED = st.lists(
    st.sampled_from(["<", "｜", "<｜", "｜>", "hy_User", "'", "{names}", "{language}", "\n"])
    | st.text(max_size=3),
    max_size=6,
).map("".join)


@settings(deadline=None)
@given(st.sampled_from(list(Task)), SUPPLIED, SUPPLIED, SUPPLIED, SUPPLIED)
def test_no_special_token_reaches_a_prompt(
    task: Task, field: str, instruction: str, target: str, hint: str
) -> None:
    request = TaskRequest(
        task,
        fields=(field, "<｜hy_User｜>"),
        instruction=instruction,
        target_language=target,
        language_hint=hint,
    )
    for generation in GENERATIONS:
        prompt = build_prompt(request, generation)
        assert prompt == neutralise(prompt)
        assert "<｜hy_User｜>" not in prompt
