"""The error tree: one class is one HTTP status and one stable code.

Every refusal a caller can meet is a class below; the table in the README is generated from
this tree (`scripts/generate.py`). Messages never quote what a caller sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar


class OcrError(Exception):
    """Base of all errors that reach a caller as RFC 9457 problem+json.

    `detail` says what was wrong with this request, `retry_after_s` when to come back,
    `headers` what the status demands beside (for example `Allow`).
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "The service failed"
    advice: ClassVar[str] = "Retry once; if it persists, report the request_id."

    def __init__(
        self,
        detail: str = "",
        *,
        retry_after_s: float | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.retry_after_s = retry_after_s
        self.headers = headers or {}


def error_classes(root: type[OcrError] = OcrError) -> Iterator[type[OcrError]]:
    """Yield every class of the tree that a caller can meet, each code once."""
    if "code" in vars(root):
        yield root
    for child in root.__subclasses__():
        yield from error_classes(child)


# The request itself


class BadRequest(OcrError):
    status = 400
    code = "bad_request"
    title = "The request is not valid"
    advice = "Correct the field that `detail` names; do not retry unchanged."


class MalformedJson(BadRequest):
    code = "malformed_json"
    title = "The body is not valid JSON"
    advice = "Send valid UTF-8 JSON within the depth limit."


class InvalidField(BadRequest):
    status = 422
    code = "invalid_field"
    title = "A field has a wrong type or value"
    advice = "Correct the fields named in `errors`; see /openapi.json."

    def __init__(self, detail: str = "", *, errors: list[dict[str, str]] | None = None) -> None:
        super().__init__(detail)
        self.errors = errors or []


class NotOneSource(BadRequest):
    code = "not_one_source"
    title = "Exactly one image or document is needed"
    advice = "Send one of `image`, `document`, a file part or a raw body."


class EmptyBody(BadRequest):
    code = "empty_body"
    title = "The body is empty"
    advice = "Send an image or a document."


class InvalidBase64(BadRequest):
    status = 422
    code = "invalid_base64"
    title = "The image is not valid base64"
    advice = "Send standard or URL-safe base64, with or without a `data:` prefix."


class UrlRefused(BadRequest):
    status = 422
    code = "url_refused"
    title = "URLs and file paths are not fetched"
    advice = "Send the bytes as base64, multipart or a raw body."


class Unauthorized(OcrError):
    status = 401
    code = "unauthorized"
    title = "A valid API key is needed"
    advice = "Send `Authorization: Bearer <id>.<secret>` or `X-API-Key`."

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail, headers={"WWW-Authenticate": 'Bearer realm="hunyuan-ocr"'})


class NotFound(OcrError):
    status = 404
    code = "not_found"
    title = "There is nothing at this path"
    advice = "See /docs for the paths."


class MethodNotAllowed(OcrError):
    status = 405
    code = "method_not_allowed"
    title = "This path does not take that method"
    advice = "Use a method that the `Allow` header lists."


class NotAcceptable(OcrError):
    status = 406
    code = "not_acceptable"
    title = "No answer format fits the Accept header"
    advice = "Accept one of the formats that /v1/options lists."


class RequestTimeout(OcrError):
    status = 408
    code = "body_timeout"
    title = "The body arrived too slowly"
    advice = "Send the body within the upload time limit."

    def __init__(self, detail: str = "") -> None:
        # Nothing more of this body is wanted.
        super().__init__(detail, headers={"Connection": "close"})


class BodyTooLarge(OcrError):
    status = 413
    code = "body_too_large"
    title = "The body is larger than the limit"
    advice = "Shrink the image or split the document; /v1/options shows the limit."


class HeadersTooLarge(OcrError):
    status = 431
    code = "headers_too_large"
    title = "The request's headers are larger than the limit"
    advice = "Send fewer or shorter headers."


class ImageTooLarge(OcrError):
    status = 413
    code = "image_too_large"
    title = "The image has more pixels than the limit"
    advice = "Scale the image down; /v1/options shows the limit."


class TooManyPages(OcrError):
    status = 413
    code = "too_many_pages"
    title = "The document has more pages than the limit"
    advice = "Ask for some of its pages with `pages`, or split it."


class UnsupportedMediaType(OcrError):
    status = 415
    code = "unsupported_media_type"
    title = "This Content-Type is not taken"
    advice = "Send JSON, multipart/form-data, or raw bytes with their own media type."


class UnsupportedFormat(OcrError):
    status = 415
    code = "unsupported_format"
    title = "The bytes are not an image or document of a supported format"
    advice = "Send one of the formats that /v1/options lists."


# What the document holds


class DocumentError(OcrError):
    """A document or page that cannot be read whatever the load; never worth a retry."""

    status = 422
    code = "document_unreadable"
    title = "The document cannot be read"
    advice = "Check the file in a viewer and send it again."


class ImageCorrupt(DocumentError):
    code = "image_corrupt"
    title = "The image is truncated or corrupt"


class PdfCorrupt(DocumentError):
    code = "pdf_corrupt"
    title = "The PDF is broken beyond repair"


class PdfEncrypted(DocumentError):
    code = "pdf_encrypted"
    title = "The PDF needs a password"
    advice = "Send the right `password`."


class PageOutOfRange(DocumentError):
    code = "page_out_of_range"
    title = "A page asked for is not in the document"
    advice = "Ask for pages between 1 and the document's page count."


class TaskUnsupported(DocumentError):
    code = "task_unsupported"
    title = "The engine in use does not do this task"
    advice = "Use a task that /v1/options lists."


class AnswerInvalid(OcrError):
    status = 422
    code = "answer_invalid"
    title = "The model's answer does not fit the schema asked for"
    advice = "Loosen the schema or send a clearer image."


# Load and faults: always with Retry-After


class Unavailable(OcrError):
    """The service cannot take the page now; `retry_after_s` says when to come back."""

    status = 503
    code = "unavailable"
    title = "The service cannot take the page now"
    advice = "Retry after `Retry-After` seconds."

    def __init__(self, detail: str = "", *, retry_after_s: float = 1.0) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)

    def for_caller(self) -> Unavailable:
        """This refusal, to be raised: a new object, whose detail is for callers.

        One object raised for many callers would hold on to all their frames; and what tells an
        operator where the engine is does not concern a caller.
        """
        return type(self)(retry_after_s=self.retry_after_s or 1.0)


class Busy(Unavailable):
    """More is asked for than can be done in time.

    Where a queue said so, `queue_position` is how many pages would have been served before and
    `predicted_wait_s` how long that takes.
    """

    status = 429

    def __init__(
        self,
        detail: str = "",
        *,
        retry_after_s: float = 1.0,
        queue_position: int | None = None,
        predicted_wait_s: float | None = None,
    ) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)
        self.queue_position = queue_position
        self.predicted_wait_s = predicted_wait_s


class QueueFull(Busy):
    code = "queue_full"
    title = "Too much work is waiting already"


class DeadlineUnreachable(Busy):
    code = "deadline_unreachable"
    title = "The page could not be done within its time"
    advice = "Retry after `Retry-After` seconds, or with a larger `timeout_s`."


class QuotaExceeded(Unavailable):
    status = 429
    code = "quota_exceeded"
    title = "This caller has used up its quota"
    advice = "Retry after `Retry-After` seconds; other callers are not affected."


class Draining(Unavailable):
    code = "draining"
    title = "This replica is about to stop"
    advice = "Retry after `Retry-After` seconds on a new connection: another replica answers."


class EngineStarting(Unavailable):
    code = "engine_starting"
    title = "The engine is still starting"


class EngineUnavailable(Unavailable):
    code = "engine_unavailable"
    title = "The engine is down, hung or overloaded"


class EngineOverloaded(EngineUnavailable):
    """It answers, and says that it holds as much as it can: fewer pages should be sent."""


class BreakerOpen(Unavailable):
    code = "breaker_open"
    title = "The engine is spared: it is too hot, too slow or fails"
    advice = "Retry after `Retry-After` seconds; another replica may answer sooner."


class EngineRejected(OcrError):
    status = 502
    code = "engine_rejected"
    title = "The engine refused the page"
    advice = "Report the request_id; the page was within our limits."


class PageFailed(OcrError):
    status = 500
    code = "page_failed"
    title = "The worker reading this page died or ran out of memory"
    advice = "Retry once; if it persists, the file is hostile or broken."


class WorkerDied(PageFailed):
    """The page's process is gone; whoever can tell the file's fault from ours may try again."""


class DeadlineExceeded(Unavailable):
    status = 504
    code = "deadline_exceeded"
    title = "The page was not done within its time"
    advice = "Retry with a larger `timeout_s` or at a quieter time."
