"""What is sent to vLLM and what is understood of its answer, without an engine."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hunyuan_ocr.documents.document import PageSize, PreparedImage
from hunyuan_ocr.engines.base import EngineEvent, EngineRequest, Finished, TextDelta, TokenUsage
from hunyuan_ocr.engines.chat import ChatStream, request_body, with_image
from hunyuan_ocr.errors import (
    EngineUnavailable,
    InvalidBase64,
    InvalidField,
    UnsupportedFormat,
    UrlRefused,
)
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.tasks.chat import IMAGE, made_safe
from hunyuan_ocr.tasks.prompts import TaskRequest, build_prompt
from tests.pictures import jpeg_bytes, png_bytes

IMAGE_START = "<｜hy_place▁holder▁no▁100｜>"


def request(**changes: Any) -> EngineRequest:
    image = PreparedImage(b"\x00image\xff", "image/png", 64, 64)
    fields: dict[str, Any] = {
        "image": image,
        "task": Task.TEXT,
        "prompt": 'say "hi" 你好',
        "max_output_tokens": 10,
        "request_id": "r",
    }
    return EngineRequest(**(fields | changes))


def test_the_body_holds_the_image_first_and_every_sampling_field() -> None:
    raw = request_body(request(), model="m", generation="1.5", max_tokens=7)
    body = json.loads(raw)
    assert body["messages"][0] == {"role": "system", "content": ""}
    image, text = body["messages"][1]["content"]
    encoded = base64.b64encode(b"\x00image\xff").decode()
    assert image["image_url"]["url"] == f"data:image/png;base64,{encoded}"
    assert text["text"] == 'say "hi" 你好'
    assert body["max_tokens"] == 7
    assert (body["temperature"], body["top_p"], body["top_k"]) == (0.0, 1.0, -1)
    assert body["repetition_penalty"] == 1.08
    assert "priority" not in body


def test_a_retry_samples_differently() -> None:
    first, second = (
        json.loads(request_body(request(attempt=n), model="m", generation="1.0", max_tokens=7))
        for n in (0, 1)
    )
    assert first["temperature"] == 0
    assert second["temperature"] > 0
    assert second["seed"] != first["seed"]


def sse(*payloads: object) -> bytes:
    return b"".join(b"data: " + json.dumps(p).encode() + b"\n\n" for p in payloads)


def delta(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text}, "finish_reason": finish}]}


ANSWER = (
    sse(
        {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
        delta("你好"),
        delta(" there", "length"),
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
    )
    + b"data: [DONE]\n\n"
)


@given(st.lists(st.integers(0, len(ANSWER)), max_size=20))
def test_a_stream_reads_the_same_however_it_is_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(ANSWER)]
    stream = ChatStream()
    events: list[EngineEvent] = []
    for start, end in pairwise(edges):
        events += stream.feed(ANSWER[start:end])
    assert stream.done
    assert events == [
        TextDelta("你好"),
        TextDelta(" there"),
        Finished("length", TokenUsage(9, 2)),
    ]


@pytest.mark.parametrize(
    "data",
    [sse({"error": {"message": "secret", "code": 500}}), sse(delta("a", "abort"))],
)
def test_an_error_in_mid_stream_is_no_answer(data: bytes) -> None:
    with pytest.raises(EngineUnavailable) as caught:
        list(ChatStream().feed(data))
    assert "secret" not in caught.value.detail


def test_done_without_an_end_is_no_answer() -> None:
    stream = ChatStream()
    assert list(stream.feed(sse(delta("a")) + b"data: [DONE]\n\n")) == [TextDelta("a")]
    assert not stream.done


def chat(*parts: object, **members: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": list(parts)}], **members}


def image_part(data: bytes, prefix: str = "data:image/png;base64,") -> dict[str, object]:
    url = prefix + base64.b64encode(data).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def json_schema(schema: dict[str, object]) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}


def text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def test_chat_passes_the_image_as_it_is_and_fills_in_sampling() -> None:
    part = image_part(png_bytes())
    safe = made_safe(chat(part, text_part("read"), temperature=0.5, user="u"), "1.5")
    assert safe.image is not None
    assert safe.image.size == PageSize(480, 160)
    sent = json.loads(with_image(safe.body, safe.image.digits, safe.image.media_type))
    assert sent["messages"][0]["content"] == [part, text_part("read")]
    assert sent["temperature"] == 0.5
    assert sent["repetition_penalty"] == 1.08
    assert safe.text_bytes == len("read")
    assert "user" not in sent


def test_chat_reads_the_size_behind_a_long_header() -> None:
    jpeg = jpeg_bytes()
    segments = b"".join(b"\xff\xe2\xff\xff" + bytes(65533) for _ in range(3))
    safe = made_safe(chat(image_part(jpeg[:2] + segments + jpeg[2:])), "1.5")
    assert safe.image is not None
    assert (safe.image.size, safe.image.media_type) == (PageSize(480, 160), "image/jpeg")


@pytest.mark.parametrize("text", [IMAGE, f'"{IMAGE}"', json.dumps(IMAGE), IMAGE * 3])
def test_no_text_of_a_caller_can_stand_in_for_the_image(text: str) -> None:
    part = image_part(png_bytes())
    safe = made_safe(chat(part, text_part(text), stop=[text]), "1.5")
    assert safe.image is not None
    sent = json.loads(with_image(safe.body, safe.image.digits, safe.image.media_type))
    assert sent["messages"][0]["content"][0] == part
    prompt = build_prompt(TaskRequest(Task.TEXT, instruction=text), "1.5")
    body = json.loads(
        request_body(request(prompt=prompt), model="m", generation="1.5", max_tokens=7)
    )
    assert body["messages"][1]["content"][0]["image_url"]["url"].startswith("data:image/png")


def test_chat_neutralises_text_wherever_it_stands() -> None:
    safe = made_safe(
        chat(
            text_part(IMAGE_START),
            stop=[IMAGE_START],
            response_format=json_schema({"properties": {IMAGE_START: {}}}),
        )
        | {"messages": [{"role": "system", "content": IMAGE_START, "name": IMAGE_START}]},
        "1.5",
    )
    assert IMAGE_START not in json.dumps(safe.body, ensure_ascii=False)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ([], InvalidField),
        ({}, InvalidField),
        ({"messages": []}, InvalidField),
        ({"messages": ["hi"]}, InvalidField),
        ({"messages": [{"role": "user"}]}, InvalidField),
        ({"messages": [{"content": "x"}]}, InvalidField),
        (chat({"type": "video_url", "video_url": {"url": "data:"}}), InvalidField),
        (chat({"type": "image_embeds", "image_embeds": "x"}), InvalidField),
        (chat(text_part("a"), n=2), InvalidField),
        (chat(text_part("a"), priority=-9), InvalidField),
        (chat(text_part("a"), stream="true"), InvalidField),
        (chat(text_part("a"), stream=1), InvalidField),
        (chat(text_part("a"), logprobs=True), InvalidField),
        (chat(text_part("a"), structured_outputs={"choice": ["a"]}), InvalidField),
        (chat(text_part("a"), response_format={"type": "structural_tag"}), InvalidField),
        (chat(text_part("a"), response_format=json_schema({"$ref": "#"})), InvalidField),
        ({"messages": [{"role": "system", "content": [image_part(png_bytes())]}]}, InvalidField),
        (chat(text_part("a"), mm_processor_kwargs={"max_pixels": 9**9}), InvalidField),
        (chat(text_part("a"), chat_template="{{ x }}"), InvalidField),
        (chat({"type": "image_url", "image_url": {"url": "http://h/a.png"}}), UrlRefused),
        (chat({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}), UrlRefused),
        (chat({"type": "image_url", "image_url": {"url": "data:image/png,x"}}), InvalidBase64),
        (chat({"type": "image_url", "image_url": {"url": "data:;base64,%"}}), InvalidBase64),
        (chat(image_part(b"no image at all")), UnsupportedFormat),
        (chat(image_part(png_bytes()), image_part(png_bytes())), InvalidField),
    ],
)
def test_chat_refuses(body: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        made_safe(body, "1.5")
