"""Who is calling, and in which class: all that is known before a body is read."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from hunyuan_ocr.api.context import context_of
from hunyuan_ocr.api.keys import KeyRing
from hunyuan_ocr.api.rate_limit import QuotaDisplay
from hunyuan_ocr.documents.document import DocumentKind
from hunyuan_ocr.errors import InvalidField
from hunyuan_ocr.traffic.classes import Priority

_IMAGE = "image/"


class Callers:
    """Names the tenant of each request, whose quotas its answer will show."""

    def __init__(self, keys: KeyRing, quotas: QuotaDisplay) -> None:
        self._keys = keys
        self._quotas = quotas

    def identify(self, scope: Scope) -> None:
        """The tenant is the key's name, else the client's address. Raises Unauthorized."""
        context = context_of(scope)
        host, _ = scope["client"] or ("unknown", 0)
        context.tenant = self._keys.tenant(Headers(scope=scope)) or host
        context.headers = partial(self._quotas.headers, context.tenant)


def priority_in_query(request: Request) -> Priority | None:
    """Raises InvalidField."""
    given = request.query_params.get("priority")
    try:
        return Priority(given) if given is not None else None
    except ValueError:
        fields = [{"field": "priority", "message": f"one of {', '.join(Priority)}"}]
        raise InvalidField("wrong type or value: priority", errors=fields) from None


def possible_classes(request: Request) -> Collection[Priority]:
    """The classes that a request to read may turn out to be of, as far as its headers tell.

    A raw body has its options in the query, and an image is one page; JSON and forms may name
    another class inside.
    """
    if priority := priority_in_query(request):
        return (priority,)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type.startswith(_IMAGE) and media_type != DocumentKind.TIFF:
        return (Priority.STANDARD,)
    # The longest queue first: most often it has room, and then nothing else is asked.
    return (Priority.BATCH, Priority.STANDARD, Priority.INTERACTIVE)
