"""What requests say, and how answers are judged."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hunyuan_ocr.api.problems import problem_body
from hunyuan_ocr.api.schemas import SimpleBody
from hunyuan_ocr.errors import error_classes
from loadtest.crosscheck import payloads
from loadtest.outcomes import Outcome
from loadtest.pages import Page, draw_pages, read_mix
from loadtest.routes import Chat, Route, StreamedError, build, has_text, judge

PAGE = Page(b"\x00page", "image/png")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["text", "pages", "choices", "message", "content", "error", "code"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def test_the_service_takes_what_is_sent() -> None:
    body = SimpleBody.model_validate_json(build(Route.OCR, PAGE, Chat()).body)
    assert base64.b64decode(body.image or "") == PAGE.content
    raw = build(Route.V1_OCR, PAGE, Chat())
    assert (raw.body, raw.media_type) == (PAGE.content, "image/png")


def test_a_chat_body_can_be_added_to_and_changed() -> None:
    chat = Chat("ocr", {"stream": True, "temperature": 1})
    body = json.loads(build(Route.CHAT, PAGE, chat).body)
    assert (body["model"], body["stream"], body["temperature"]) == ("ocr", True, 1)
    image = body["messages"][1]["content"][0]["image_url"]["url"]
    assert image.startswith("data:image/png;base64,")


@pytest.mark.parametrize(
    "error", [e for e in error_classes() if e.status in (429, 503)], ids=lambda e: str(e.code)
)
def test_every_refusal_of_the_service_is_one(error: Any) -> None:
    body = json.dumps(problem_body(error(), "id")).encode()
    reply = judge(Route.OCR, error.status, body, "3")
    assert (reply.outcome, reply.code, reply.retry_after_s) == (Outcome.REFUSED, error.code, 3)


@pytest.mark.parametrize(
    ("route", "body", "outcome", "code"),
    [
        (Route.OCR, {"text": ""}, Outcome.ANSWERED, ""),
        (Route.OCR, {"text": None}, Outcome.FAILED, "no text"),
        (Route.V1_OCR, {"pages": [{"error": None}]}, Outcome.ANSWERED, ""),
        (
            Route.V1_OCR,
            {"pages": [{"error": {"code": "page_failed"}}]},
            Outcome.FAILED,
            "page_failed",
        ),
        (Route.V1_OCR, {"pages": []}, Outcome.FAILED, "no pages"),
        (Route.CHAT, {"choices": [{"message": {"content": "x"}}]}, Outcome.ANSWERED, ""),
        (Route.CHAT, {"choices": []}, Outcome.FAILED, "no text"),
    ],
)
def test_an_answer_counts_only_with_what_was_asked_for(
    route: Route, body: object, outcome: Outcome, code: str
) -> None:
    reply = judge(route, 200, json.dumps(body).encode(), None)
    assert (reply.outcome, reply.code) == (outcome, code)


def test_pages_read_by_the_cpu_engine_are_told_apart() -> None:
    body = {"pages": [{"error": None, "degraded": True}]}
    assert judge(Route.V1_OCR, 200, json.dumps(body).encode(), None).degraded


@given(route=st.sampled_from(Route), status=st.sampled_from([200, 400, 429, 500, 503]), body=JSON)
@settings(deadline=None)
def test_any_answer_is_judged(route: Route, status: int, body: object) -> None:
    reply = judge(route, status, json.dumps(body).encode(), "soon")
    assert reply.retry_after_s is None
    assert (reply.outcome is Outcome.ANSWERED) <= (status == 200)


@given(body=st.binary(max_size=40))
@settings(deadline=None)
def test_nor_does_what_is_no_json_stop_it(body: bytes) -> None:
    assert judge(Route.OCR, 502, body, None).outcome is Outcome.FAILED
    has_text(body)


def test_an_error_in_a_stream_is_raised_with_its_code() -> None:
    with pytest.raises(StreamedError, match="deadline_exceeded"):
        has_text(b'data: {"error": {"code": "deadline_exceeded"}}')


def test_other_generators_are_given_the_same_pages(tmp_path: Path) -> None:
    pages = draw_pages(read_mix("64x64"), 2)
    payloads.write(tmp_path, pages, Chat())
    bodies = [json.loads(line) for line in (tmp_path / "chat.jsonl").read_text().splitlines()]
    assert [json.dumps(body).encode() for body in bodies] == [
        build(Route.CHAT, page, Chat()).body for page in pages
    ]
    plain = [json.loads(line) for line in (tmp_path / "pages.jsonl").read_text().splitlines()]
    for page, line in zip(pages, plain, strict=True):
        assert line["image"] == "data:image/jpeg;base64," + base64.b64encode(page.content).decode()
