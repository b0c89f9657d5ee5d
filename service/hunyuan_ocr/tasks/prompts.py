"""What the model is asked, by task.

The wording is Tencent's own, published with each generation, and in Chinese, the language the
prompts were trained in first: free wording lowers the quality without a sign of it. Tasks that
a generation's list leaves out use the wording of the other one.
"""

from __future__ import annotations

from dataclasses import dataclass

from hunyuan_ocr.errors import InvalidField
from hunyuan_ocr.tasks.catalogue import Generation, Task
from hunyuan_ocr.tasks.special_tokens import neutralise

_COMMON: dict[Task, str] = {
    Task.TEXT: "提取图中的文字。",
    Task.MARKDOWN: (
        "提取文档图片中正文的所有信息用markdown格式表示，其中页眉、页脚部分忽略，"
        "表格用html格式表达，文档中公式用latex格式表示，按照阅读顺序组织进行解析。"
    ),
    # 1.5 also knows a JSON form. This one costs a third of its output tokens.
    Task.SPOTTING: "检测并识别图片中的文字，将文本坐标格式化输出。",
    Task.LAYOUT: "按照阅读顺序解析图中的版式信息。",
    Task.TABLE: "把图中的表格解析为HTML。",
    Task.FORMULA: "识别图片中的公式，用LaTeX格式表示。",
    Task.CHART: "解析图中的图表，对于流程图使用Mermaid格式表示，其他图表使用Markdown格式表示。",
    Task.SUBTITLE: "提取图片中的字幕。",
    Task.EXTRACT: "提取图片中的: {names} 的字段内容，并按照 JSON 格式返回。",
}

PROMPTS: dict[Generation, dict[Task, str]] = {
    "1.0": _COMMON
    | {
        Task.TRANSLATE: (
            "先提取文字，再将文字内容翻译为{language}。若是文档，则其中页眉、页脚忽略。"
            "公式用latex格式表示，表格用html格式表示。"
        ),
    },
    "1.5": _COMMON
    | {
        Task.TRANSLATE: (
            "按照阅读顺序，提取图中文字，公式用latex格式表示，表格用markdown格式表示，"
            "再将文字内容翻译为{language}。"
        ),
    },
}

# Only zh and en are official targets; the others follow the same sentence.
LANGUAGES: dict[str, str] = {
    "ar": "阿拉伯文",
    "de": "德文",
    "en": "英文",
    "es": "西班牙文",
    "fr": "法文",
    "hi": "印地文",
    "id": "印尼文",
    "it": "意大利文",
    "ja": "日文",
    "ko": "韩文",
    "ms": "马来文",
    "nl": "荷兰文",
    "pl": "波兰文",
    "pt": "葡萄牙文",
    "ru": "俄文",
    "th": "泰文",
    "tr": "土耳其文",
    "uk": "乌克兰文",
    "vi": "越南文",
    "zh": "中文",
    "zh-hant": "繁体中文",
    "zh-tw": "繁体中文",
}
DEFAULT_TARGET = "en"


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """What a caller wants of a page; limits on lengths are the API's to check.

    `fields` or `json_schema` belong to extract, `target_language` to translate: a language code
    or a name in any language. `language_hint` names the language of the page likewise.
    """

    task: Task
    fields: tuple[str, ...] = ()
    json_schema: dict[str, object] | None = None
    instruction: str | None = None
    target_language: str | None = None
    language_hint: str | None = None

    @property
    def has_words(self) -> bool:
        """Whether it asks for more than the task's name says."""
        return bool(self.instruction or self.target_language)


def field_names(request: TaskRequest) -> tuple[str, ...]:
    """The names to extract: the fields, else the top-level properties of the schema."""
    if request.fields or request.json_schema is None:
        return request.fields
    properties = request.json_schema.get("properties")
    return tuple(properties) if isinstance(properties, dict) else ()


def build_prompt(request: TaskRequest, generation: Generation) -> str:
    """The user text for a page, with every special token in it broken.

    `instruction` is added after the official wording, since the model ignores prompts that
    stray from it; only for an extract without names is it the whole prompt. Raises
    `InvalidField` for an extract with nothing to extract.
    """
    names = field_names(request)
    instruction = (request.instruction or "").strip()
    if request.task is Task.EXTRACT and not names:
        if not instruction:
            raise InvalidField("extract needs fields, a schema with properties or an instruction")
        parts = [instruction]
    else:
        official = PROMPTS[generation][request.task]
        target = _language(request.target_language or DEFAULT_TARGET)
        # Tencent's own worked example writes the names as Python prints a list.
        parts = [official.replace("{language}", target).replace("{names}", str(list(names)))]
        if instruction:
            parts.append(instruction)
    if request.language_hint and request.language_hint.strip():
        parts.append(f"图中的文字是{_language(request.language_hint)}。")
    # Once over the whole: no seam between two parts can form a token.
    return neutralise("\n".join(parts))


def _language(name: str) -> str:
    """The Chinese name of a language; its region is dropped where only the language is known."""
    code = name.strip().lower().replace("_", "-")
    return LANGUAGES.get(code) or LANGUAGES.get(code.split("-")[0]) or " ".join(name.split())
