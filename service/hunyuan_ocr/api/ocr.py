"""POST /ocr and POST /v1/ocr."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from starlette.types import Send

from hunyuan_ocr.api.callers import priority_in_query
from hunyuan_ocr.api.context import RequestContext, context_of
from hunyuan_ocr.api.formats import FORMATS, JSON, Format, SimpleJson
from hunyuan_ocr.api.intake import receive_document
from hunyuan_ocr.api.live import LiveAnswer
from hunyuan_ocr.api.negotiate import choose
from hunyuan_ocr.api.openapi import read_operation
from hunyuan_ocr.api.schemas import ReadBody, ReadOptions, SimpleBody
from hunyuan_ocr.errors import InvalidField
from hunyuan_ocr.fallback import Documents
from hunyuan_ocr.reading import ReadRequest
from hunyuan_ocr.tasks import extract
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.tasks.prompts import TaskRequest
from hunyuan_ocr.telemetry.stages import Stage

# Pages end by the deadline; a client may take this much longer to read what was made of them.
_SEND_GRACE_S = 30.0


@dataclass(frozen=True, slots=True)
class OcrLimits:
    """What a caller may ask for."""

    max_body_bytes: int
    max_instruction_chars: int
    max_timeout_s: float


class OcrRoutes:
    """The routes that read."""

    def __init__(self, documents: Documents, limits: OcrLimits) -> None:
        self._documents = documents
        self._limits = limits
        self.router = APIRouter(tags=["ocr"])
        self.router.add_api_route(
            "/ocr", self.simple, methods=["POST"], **read_operation(SimpleBody, simple=True)
        )
        self.router.add_api_route(
            "/v1/ocr", self.read, methods=["POST"], **read_operation(ReadBody, simple=False)
        )

    async def simple(self, request: Request) -> Response:
        """Read the text of an image or document; answers `{"text": …}`."""
        return await self._read(request, SimpleBody, {**FORMATS, JSON: SimpleJson()})

    async def read(self, request: Request) -> Response:
        """Read an image or document, page by page, with the place of every line."""
        return await self._read(request, ReadBody, FORMATS)

    async def _read(
        self, request: Request, schema: type[ReadBody], formats: Mapping[str, Format]
    ) -> Response:
        context = context_of(request.scope)
        media_type = choose(request.headers.get("accept", ""), tuple(formats))
        with context.stages.stage(Stage.RECEIVE):
            data, options = await receive_document(request, schema, self._limits.max_body_bytes)
        self._check(options)
        context.fields["task"] = options.task
        wanted = self._read_request(request, data, options, context)
        if wanted.priority is not None:  # or else its pages decide
            context.usage.priority = wanted.priority
        # Until it is known how many pages there are.
        time_left_s = self._limits.max_timeout_s - context.elapsed_s()
        return ReadAnswer(self._documents, wanted, formats[media_type], media_type, time_left_s)

    def _read_request(
        self, request: Request, data: bytes, options: ReadOptions, context: RequestContext
    ) -> ReadRequest:
        return ReadRequest(
            data=data,
            task=TaskRequest(
                task=options.task,
                fields=tuple(options.fields),
                json_schema=options.json_schema,
                instruction=options.instruction,
                target_language=options.target_language,
                language_hint=options.language_hint,
            ),
            request_id=context.request_id,
            tenant=context.tenant,
            # For the whole request: the time its body took to arrive counts.
            arrived_at=asyncio.get_running_loop().time() - context.elapsed_s(),
            priority=options.priority or priority_in_query(request),
            timeout_s=options.timeout_s,
            pages=options.pages,
            password=options.password,
            orient=options.orient,
            detail=options.detail,
            allow_degraded=options.allow_degraded,
        )

    def _check(self, options: ReadOptions) -> None:
        if options.task is not Task.EXTRACT and (options.fields or options.json_schema):
            raise InvalidField("`fields` and `json_schema` belong to the task `extract`")
        if options.json_schema is not None and (
            problems := extract.schema_problems(options.json_schema)
        ):
            raise InvalidField(f"json_schema: {problems[0]}")
        longest = max(map(len, (options.instruction or "", *options.fields)))
        if longest > self._limits.max_instruction_chars:
            raise InvalidField(
                f"`instruction` and `fields` take {self._limits.max_instruction_chars} characters"
            )


class ReadAnswer(LiveAnswer):
    """A document's pages in the form that was asked for."""

    def __init__(
        self,
        documents: Documents,
        wanted: ReadRequest,
        form: Format,
        media_type: str,
        time_left_s: float,
    ) -> None:
        super().__init__(media_type, time_left_s + _SEND_GRACE_S)
        self._documents = documents
        self._wanted = wanted
        self._form = form

    async def _respond(self, context: RequestContext, send: Send) -> None:
        started = False
        async with self._documents.open(self._wanted, context.stages) as reading:
            self._end_by(reading.deadline + _SEND_GRACE_S)
            context.fields |= {"pages": len(reading.selected), "class": reading.priority}
            async with aclosing(self._form.chunks(reading, context)) as chunks:
                async for chunk in chunks:
                    if not started:
                        await send(self._start(None if self._form.streamed else len(chunk)))
                        started = True
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
