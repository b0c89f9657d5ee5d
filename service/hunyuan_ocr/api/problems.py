"""Errors as RFC 9457 problem+json, in one place."""

from __future__ import annotations

import math
import random
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import Scope

from hunyuan_ocr.api.context import context_of
from hunyuan_ocr.api.live import CLIENT_CLOSED, ClientGone
from hunyuan_ocr.errors import (
    BadRequest,
    Busy,
    InvalidField,
    MalformedJson,
    MethodNotAllowed,
    NotFound,
    OcrError,
    QuotaExceeded,
)

PROBLEM_MEDIA_TYPE = "application/problem+json"
# Clients told to come back at the same moment would: spread them over half as long again.
_RETRY_JITTER = 0.5
_FIELD_ERRORS_MAX = 20
_FIELD_NAME_CHARS = 60
_OPENAI_PATHS = ("/v1/chat/", "/v1/models")


def problem_body(error: OcrError, request_id: str) -> dict[str, Any]:
    """The members of a problem; `errors` only where single fields are wrong."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": error.title,
        "status": error.status,
        "code": error.code,
        "detail": error.detail,
        "request_id": request_id,
    }
    if isinstance(error, InvalidField) and error.errors:
        body["errors"] = error.errors
    if error.retry_after_s is not None:
        body["retry_after_s"] = error.retry_after_s
    if isinstance(error, Busy) and error.queue_position is not None:
        body["queue_position"] = error.queue_position
        body["predicted_wait_s"] = error.predicted_wait_s
    return body


def problem_response(error: OcrError, scope: Scope) -> JSONResponse:
    headers = dict(error.headers)
    body = problem_body(error, context_of(scope).request_id)
    if scope["path"].startswith(_OPENAI_PATHS):
        # Where OpenAI's clients look for it.
        body["error"] = openai_error(error)
    if error.retry_after_s is not None:
        after_s = math.ceil(_spread_s(error, error.retry_after_s))
        body["retry_after_s"] = after_s
        headers["Retry-After"] = str(after_s)
    return JSONResponse(body, error.status, headers, media_type=PROBLEM_MEDIA_TYPE)


def _spread_s(error: OcrError, after_s: float) -> float:
    """A queue and a quota tell each caller another time already."""
    if isinstance(error, QuotaExceeded) or (
        isinstance(error, Busy) and error.queue_position is not None
    ):
        return after_s
    return after_s * (1 + _RETRY_JITTER * random.random())  # noqa: S311


def openai_error(error: OcrError) -> dict[str, str]:
    return {"message": error.detail, "type": error.code, "code": error.code}


def invalid_fields(error: ValidationError | RequestValidationError) -> BadRequest:
    """A pydantic error as ours: field names and messages, never the values sent."""
    found = error.errors()[:_FIELD_ERRORS_MAX]
    if any(item["type"] == "json_invalid" for item in found):
        return MalformedJson("the body is not valid JSON")
    fields = [{"field": _field_name(item["loc"]), "message": item["msg"]} for item in found]
    names = ", ".join(dict.fromkeys(field["field"] for field in fields))
    return InvalidField(f"wrong type or value: {names}", errors=fields)


def as_ocr_error(error: BaseException) -> OcrError:
    """Whatever went wrong, as one class of our tree."""
    if isinstance(error, OcrError):
        return error
    if isinstance(error, ValidationError | RequestValidationError):
        return invalid_fields(error)
    if isinstance(error, HTTPException):
        if error.status_code == NotFound.status:
            return NotFound()
        if error.status_code == MethodNotAllowed.status:
            return MethodNotAllowed(headers=dict(error.headers or {}))
        if error.status_code < OcrError.status:
            return BadRequest(str(error.detail))
    return OcrError("an unexpected error; it was logged under the request_id")


def _field_name(location: tuple[int | str, ...]) -> str:
    name = ".".join(map(str, location)) or "body"
    return name if len(name) <= _FIELD_NAME_CHARS else name[:_FIELD_NAME_CHARS] + "…"


async def handle_error(request: Request, error: Exception) -> Response:
    """The one exception handler of the API."""
    context = context_of(request.scope)
    if isinstance(error, ClientGone):
        context.cancelled = True
        return Response(status_code=CLIENT_CLOSED)  # which nobody receives
    known = as_ocr_error(error)
    context.code = known.code
    return problem_response(known, request.scope)
