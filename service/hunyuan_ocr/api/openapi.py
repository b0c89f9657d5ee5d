"""The OpenAPI document: bodies and answers that the framework cannot guess."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from PIL import Image, ImageDraw, ImageFont
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from hunyuan_ocr import errors
from hunyuan_ocr.api.formats import FORMATS, JSON
from hunyuan_ocr.api.problems import PROBLEM_MEDIA_TYPE
from hunyuan_ocr.api.schemas import (
    DocumentOut,
    PageOut,
    Problem,
    ReadBody,
    ReadOptions,
    SimpleAnswer,
    SimpleBody,
)
from hunyuan_ocr.documents.document import DocumentKind

_REF = "#/components/schemas/{model}"
_MODELS = (DocumentOut, PageOut, Problem, ReadBody, SimpleAnswer, SimpleBody)
_EXAMPLE_TEXT = "Invoice No: 20417"


def example_picture() -> bytes:
    """A small PNG with one line of text, so that the examples can be run as they stand."""
    picture = Image.new("L", (240, 48), 255)
    font = ImageFont.load_default(size=24)
    ImageDraw.Draw(picture).text((12, 8), _EXAMPLE_TEXT, fill=0, font=font)
    out = io.BytesIO()
    picture.convert("1").save(out, "PNG", optimize=True)
    return out.getvalue()


def read_operation(schema: type[BaseModel], *, simple: bool) -> dict[str, Any]:
    """The keyword arguments of a reading route."""
    return {
        "response_model": None,
        "openapi_extra": {"requestBody": _request_body(schema), "parameters": _parameters()},
        "responses": {
            200: {
                "description": "What was read, in the form that Accept asks for.",
                "content": _answers(simple),
            },
            **_problem_responses(),
        },
    }


def _request_body(schema: type[BaseModel]) -> dict[str, Any]:
    reference = {"$ref": _REF.format(model=schema.__name__)}
    form = {
        "type": "object",
        "properties": {"file": {"type": "string", "format": "binary"}},
        "required": ["file"],
    }
    picture = base64.b64encode(example_picture()).decode()
    raw = {kind.value: {"schema": {"type": "string", "format": "binary"}} for kind in DocumentKind}
    json_body = {"schema": reference, "examples": {"picture": {"value": {"image": picture}}}}
    content = {JSON: json_body, "multipart/form-data": {"schema": form}, **raw}
    return {"required": True, "content": content}


def _parameters() -> list[dict[str, Any]]:
    """With raw bytes the options stand in the query."""
    properties = ReadOptions.model_json_schema(ref_template=_REF)["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": _text_form(name, schema)}
        for name, schema in properties.items()
    ]


def _text_form(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "string", "description": "JSON."} if name == "json_schema" else schema


def _answers(simple: bool) -> dict[str, Any]:
    model = SimpleAnswer if simple else DocumentOut
    content: dict[str, Any] = {name: {"schema": {"type": "string"}} for name in FORMATS}
    content[JSON] = {"schema": {"$ref": _REF.format(model=model.__name__)}}
    if simple:
        content[JSON]["example"] = {"text": _EXAMPLE_TEXT}
    return content


def _problem_responses() -> dict[int | str, dict[str, Any]]:
    by_status: dict[int, list[str]] = {}
    for error in errors.error_classes():
        by_status.setdefault(error.status, []).append(f"`{error.code}`: {error.title}.")
    return {status: _problem(lines) for status, lines in sorted(by_status.items())}


def _problem(lines: Iterable[str]) -> dict[str, Any]:
    schema = {"$ref": _REF.format(model=Problem.__name__)}
    return {"description": " ".join(lines), "content": {PROBLEM_MEDIA_TYPE: {"schema": schema}}}


def _chat_paths() -> dict[str, Any]:
    """The routes that are passed through, whose bodies are OpenAI's."""
    any_object = {JSON: {"schema": {"type": "object"}}}
    answers = {"200": {"description": "As OpenAI's.", "content": any_object}}
    problems = {str(status): answer for status, answer in _problem_responses().items()}
    return {
        "/v1/models": {"get": {"tags": ["openai"], "responses": answers | problems}},
        "/v1/chat/completions": {
            "post": {
                "tags": ["openai"],
                "summary": "Chat completions with at most one image, as a `data:` URL",
                "requestBody": {"required": True, "content": any_object},
                "responses": answers | problems,
            }
        },
    }


def install_openapi(app: FastAPI, *, chat: bool) -> None:
    """Make `app` publish a document that holds our models beside what it found itself.

    `chat` says that the routes passed through to the engine are there.
    """

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            _, ours = models_json_schema(
                [(model, "validation") for model in _MODELS], ref_template=_REF
            )
            components = schema.setdefault("components", {}).setdefault("schemas", {})
            components.update(ours["$defs"])
            if chat:
                schema["paths"].update(_chat_paths())
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
