"""The chat route with the official client, over a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.api.server import Server
from tests.engine.papers import chat, invoices
from tests.files import png_bomb


@pytest.fixture
def client(service: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0) as opened:
        yield opened


def messages(png: bytes) -> Any:
    return chat(png)["messages"]


def test_text_usage_and_finish(client: openai.OpenAI) -> None:
    (paper,) = invoices(1, seed=20)
    model = client.models.list().data[0].id
    answer = client.chat.completions.create(model=model, messages=messages(paper.png))
    assert answer.choices[0].message.content == paper.text
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 10
    cut = client.chat.completions.create(model=model, messages=messages(paper.png), max_tokens=3)
    assert cut.choices[0].finish_reason == "length"


def test_streaming(client: openai.OpenAI) -> None:
    (paper,) = invoices(1, seed=21)
    stream = client.chat.completions.create(
        model="hunyuan-ocr",
        messages=messages(paper.png),
        stream=True,
        stream_options={"include_usage": True},
    )
    text, usage = "", None
    for chunk in stream:
        usage = chunk.usage or usage
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert text == paper.text
    assert usage is not None
    assert usage.prompt_tokens > 10


def test_repetition_is_told_apart(client: openai.OpenAI) -> None:
    """Two equal characters in a row count as repetition here, and the amount has them."""
    paper = next(p for p in invoices(50, seed=24) if "77" in p.text or "55" in p.text)
    answer = client.chat.completions.create(
        model="hunyuan-ocr",
        messages=messages(paper.png),
        extra_body={
            "repetition_detection": {
                "max_pattern_size": 1,
                "min_pattern_size": 1,
                "min_count": 2,
            }
        },
    )
    assert str(answer.choices[0].finish_reason) == "repetition"


def test_errors_are_the_clients_own_exceptions(client: openai.OpenAI) -> None:
    (paper,) = invoices(1, seed=22)
    create = client.chat.completions.create
    with pytest.raises(openai.NotFoundError):
        create(model="gpt-9", messages=messages(paper.png))
    with pytest.raises(openai.BadRequestError) as bad:
        create(model="hunyuan-ocr", messages=messages(paper.png), max_tokens=-1)
    assert "max_tokens" in bad.value.message
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        create(
            model="hunyuan-ocr",
            messages=[
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "http://a/b.png"}}],
                }
            ],
        )
    assert refused.value.code == "url_refused"
    with pytest.raises(openai.APIStatusError) as large:
        create(model="hunyuan-ocr", messages=messages(png_bomb(40_000, 40_000)))
    assert (large.value.status_code, large.value.code) == (413, "image_too_large")


def test_a_caller_cannot_jump_the_queue(client: openai.OpenAI, service: Server) -> None:
    (paper,) = invoices(1, seed=23)
    answer = client.chat.completions.create(
        model="hunyuan-ocr",
        messages=messages(paper.png),
        extra_headers={"X-Vllm-Priority": "-100"},
    )
    assert answer.choices[0].message.content == paper.text
    response = httpx.post(
        f"{service.url}/v1/chat/completions",
        json={"messages": [{"role": "user", "content": "a"}], "priority": -5},
    )
    assert response.json()["code"] == "invalid_field"
