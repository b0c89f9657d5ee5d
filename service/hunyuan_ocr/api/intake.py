"""From an HTTP request to the bytes of one document and what to do with it."""

from __future__ import annotations

import io
from collections.abc import Iterable
from math import isfinite
from typing import Any, TypeVar

from fastapi import Request
from pydantic_core import from_json
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect

from hunyuan_ocr.api.live import ClientGone
from hunyuan_ocr.api.schemas import ReadBody, ReadOptions
from hunyuan_ocr.documents.encoding import decode_base64
from hunyuan_ocr.errors import (
    BadRequest,
    EmptyBody,
    InvalidField,
    MalformedJson,
    NotOneSource,
    UnsupportedMediaType,
)

_MULTIPART = "multipart/form-data"
_JSON = "application/json"
_RAW = ("image/", "application/pdf", "application/octet-stream")
_FORM_PARTS_MAX = 40
# Others make characters that are none, or none at all.
_CHARSETS = (b"utf-8", b"utf8", b"us-ascii")
_MEMBERS_MAX = 40
_JSON_VALUES_MAX = 20_000

Body = TypeVar("Body", bound=ReadBody)


async def receive_document(
    request: Request, schema: type[Body], max_bytes: int
) -> tuple[bytes, ReadOptions]:
    """Read the body to its end: JSON of `schema`, multipart or raw bytes.

    Raises one of the BadRequest family, UnsupportedMediaType or ClientGone.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("bodies are taken without a Content-Encoding")
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media_type == _MULTIPART:
        try:
            return await _from_form(request, schema, max_bytes)
        except ClientDisconnect:
            raise ClientGone from None
    body = await whole_body(request)
    if not body:
        raise EmptyBody
    if media_type == _JSON:
        return _from_json(_validated(schema, body), max_bytes)
    if media_type.startswith(_RAW):
        return body, ReadOptions.model_validate(_collect(request.query_params.multi_items()))
    raise UnsupportedMediaType("send JSON, multipart/form-data, image/*, or application/pdf")


async def whole_body(request: Request) -> bytes:
    """The body, of which nobody else keeps a copy as `Request.body` would. Raises ClientGone."""
    # Pieces that were joined would be twice in memory for a moment; this hands out what it holds.
    received = io.BytesIO()
    try:
        async for piece in request.stream():
            received.write(piece)
    except ClientDisconnect:
        raise ClientGone from None
    return received.getvalue()


def _validated(schema: type[Body], body: bytes) -> Body:
    """The body as a model. Its members are counted first: each one unknown costs an error."""
    members = parse_json(body)
    if isinstance(members, dict) and len(members) > _MEMBERS_MAX:
        raise InvalidField(f"the body has more than {_MEMBERS_MAX} members")
    return schema.model_validate(members)


def parse_json(body: bytes) -> Any:
    """Decode a body. What it would grow to is bounded first: `{},{},…` takes 30 times its size.

    Raises MalformedJson, InvalidField.
    """
    if sum(body.count(sign) for sign in b",[{") > _JSON_VALUES_MAX:
        raise InvalidField(f"the body has more than {_JSON_VALUES_MAX} values")
    try:
        found = from_json(body, allow_inf_nan=False)
    except ValueError:
        raise MalformedJson from None
    if not _finite(found):  # 1e999 is JSON, and what is made of it is not
        raise InvalidField("the body has a number beyond all bounds")
    return found


def _finite(value: Any) -> bool:
    """Whether all numbers within are; nesting is bounded by the parser."""
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    return not isinstance(value, list) or all(map(_finite, value))


def _from_json(body: ReadBody, max_bytes: int) -> tuple[bytes, ReadOptions]:
    sources = [text for text in (body.image, body.document) if text is not None]
    if len(sources) != 1:
        raise NotOneSource(f"{len(sources)} of `image` and `document` were sent")
    return decode_base64(sources[0], max_bytes), body


async def _from_form(
    request: Request, schema: type[Body], max_bytes: int
) -> tuple[bytes, ReadOptions]:
    _, parameters = parse_options_header(request.headers.get("content-type"))
    if parameters.get(b"charset", b"utf-8").lower() not in _CHARSETS:
        raise BadRequest("a form is taken in UTF-8")
    async with request.form(
        max_files=2, max_fields=_FORM_PARTS_MAX, max_part_size=max_bytes
    ) as form:
        files = [await part.read() for part in _uploads(form)]
        texts = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    body = schema.model_validate(_collect(texts))
    if len(files) + (body.image is not None) + (body.document is not None) != 1:
        raise NotOneSource(f"{len(files)} file parts were sent")
    if not files:
        return _from_json(body, max_bytes)
    if not files[0]:
        raise EmptyBody("the file part is empty")
    return files[0], body


def _uploads(form: FormData) -> Iterable[UploadFile]:
    return (part for _, part in form.multi_items() if isinstance(part, UploadFile))


def _collect(items: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Text parameters as members: `fields` may repeat, `json_schema` is JSON itself."""
    members: dict[str, Any] = {}
    for name, value in items:
        if name == "fields":
            names = (part.strip() for part in value.split(","))
            members.setdefault(name, []).extend(filter(None, names))
        elif name in members:
            raise BadRequest("a parameter was sent twice")
        else:
            members[name] = _json_member(value) if name == "json_schema" else value
    return members


def _json_member(value: str) -> Any:
    try:
        return parse_json(value.encode())
    except (MalformedJson, UnicodeEncodeError):
        raise InvalidField("json_schema is not valid JSON") from None
