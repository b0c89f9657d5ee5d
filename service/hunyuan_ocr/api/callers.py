"""Who is calling, and in which class: all that is known before a body is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv6Address, ip_address

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from hunyuan_ocr.api.context import context_of
from hunyuan_ocr.api.keys import KeyRing
from hunyuan_ocr.api.rate_limit import QuotaDisplay
from hunyuan_ocr.documents.document import DocumentKind
from hunyuan_ocr.errors import InvalidField
from hunyuan_ocr.traffic.classes import Priority

# Where pages are posted to.
SIMPLE, OCR, CHAT = "/ocr", "/v1/ocr", "/v1/chat/completions"
ENTRANCES = frozenset({SIMPLE, OCR, CHAT})
_IMAGE = "image/"
# What one household or host has of IPv6: it may use any address within (RFC 6177).
_IPV6_PREFIX_BITS = 64


class Callers:
    """Names the tenant of each request, whose quotas its answer will show."""

    def __init__(self, keys: KeyRing, quotas: QuotaDisplay) -> None:
        self._keys = keys
        self.quotas = quotas

    def identify(self, scope: Scope) -> None:
        """The tenant is the key's name, else the client's address; of IPv6, the network.

        Raises Unauthorized.
        """
        context = context_of(scope)
        host, _ = scope["client"] or ("unknown", 0)
        context.tenant = self._keys.tenant(Headers(scope=scope)) or network(host)
        context.headers = partial(self.quotas.headers, context.tenant)

    async def authenticate(self, request: Request) -> None:
        """`identify` as a dependency of routes that take no pages."""
        self.identify(request.scope)


def network(host: str) -> str:
    """The part of a client's address that it cannot choose for itself."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    free_bits = address.max_prefixlen - _IPV6_PREFIX_BITS
    return f"{IPv6Address(int(address) >> free_bits << free_bits)}/{_IPV6_PREFIX_BITS}"


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


def class_of_chat(request: Request) -> Collection[Priority]:
    """Raises InvalidField."""
    return (priority_in_query(request) or Priority.STANDARD,)


# Raises where no class of some has room for a tenant.
Check = Callable[[Iterable[Priority], str], None]


@dataclass(frozen=True, slots=True)
class Entrance:
    """A path that pages are posted to, and the classes that such a request may be of."""

    path: str
    classes: Callable[[Request], Collection[Priority]]
    check: Check


class Door:
    """Identifies who brings pages, and refuses them before their body where there is no room.

    Most requests of an overload end here, so it stands before the framework: that takes longer
    over a request than all of a refusal.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        callers: Callers,
        check: Check,
        check_chat: Check,
    ) -> None:
        self._app = app
        self._callers = callers
        entrances = (
            Entrance(SIMPLE, possible_classes, check),
            Entrance(OCR, possible_classes, check),
            Entrance(CHAT, class_of_chat, check_chat),
        )
        self._entrances = {entrance.path: entrance for entrance in entrances}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            entrance = self._entrances.get(scope["path"])
            if entrance is not None:
                scope["route"] = entrance  # whose path is the label of metrics and log lines
            self._callers.identify(scope)  # whatever the path: the router knows more spellings
            if entrance is not None:
                context, possible = context_of(scope), entrance.classes(Request(scope))
                if len(possible) == 1:
                    (context.usage.priority,) = possible
                entrance.check(possible, context.tenant)
        await self._app(scope, receive, send)
