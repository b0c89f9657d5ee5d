"""The protocol every engine speaks, and the values that cross it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from hunyuan_ocr.documents.document import Detail, DocumentKind, ImageEncoding, PreparedImage
from hunyuan_ocr.documents.geometry import Polygon
from hunyuan_ocr.errors import Unavailable
from hunyuan_ocr.tasks.catalogue import Generation, Task

FinishReason = Literal["stop", "length", "repetition"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text; `polygon` in pixels of the image it was read from.

    `label` is the kind of a region of a layout, such as "title".
    """

    text: str
    polygon: Polygon
    label: str | None = None


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens as the engine counted them; zero for engines without tokens."""

    prompt: int = 0
    output: int = 0


NO_USAGE = TokenUsage()


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One page for one engine.

    `prompt` is the user text, already safe to send; engines without prompts ignore it.
    `attempt` counts from 0: a retry of the same page samples differently.
    """

    image: PreparedImage
    task: Task
    prompt: str
    max_output_tokens: int
    request_id: str
    attempt: int = 0
    json_schema: dict[str, object] | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text as it is generated."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an answer. `lines` only from engines that place lines themselves."""

    reason: FinishReason
    usage: TokenUsage = NO_USAGE
    lines: tuple[Line, ...] | None = None


EngineEvent = TextDelta | Finished
Read = Callable[[EngineRequest], AsyncGenerator[EngineEvent]]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do and how it wants its images.

    Images in a format of `accepts` may be forwarded untouched, others arrive as `encoding`.
    `max_pixels` are the most of an image by the detail asked for. `prompted` says that it
    follows words: instructions, hints, target languages; `places_lines` that its answers hold
    the place of every line whatever the task; `vision_transformer` that every patch of an image
    attends to every other.
    """

    engine: str
    model: str
    tasks: frozenset[Task]
    encoding: ImageEncoding
    min_pixels: int
    max_pixels: Mapping[Detail, int]
    max_output_tokens: int
    concurrency: int
    accepts: frozenset[DocumentKind] = frozenset()
    prompted: bool = True
    places_lines: bool = False
    vision_transformer: bool = True
    generation: Generation = "1.5"


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """What an orchestrator asks before it restarts an engine, whether or not pages may be sent.

    `answers` says that it is up now. `dead_for_s` is how long an engine that was up has been gone
    or has made no step while work waited; 0 for one that is starting, idle or busy. `leaks` says
    that it was seen to mix up the pages of its callers.
    """

    answers: bool
    dead_for_s: float
    reason: str
    leaks: bool = False


class EngineListener(Protocol):
    """Who wants to hear what happens to an engine."""

    async def met(self, capabilities: Capabilities, read: Read) -> None:
        """A process answers that was not met before; until this returns nobody is served by it.

        `read` is its `stream`. Raises what reading raises.
        """

    def preempted(self) -> None:
        """It took back memory from pages that it was reading."""


class Engine(Protocol):
    """An engine; used by one event loop."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; only the model's name may change, when an engine restarts."""

    async def start(self) -> None:
        """Make ready to read; returns once pages can be sent or will be refused with a reason."""

    async def close(self) -> None:
        """Give everything back; pages in flight fail with `EngineUnavailable`."""

    def refusal(self) -> Unavailable | None:
        """What pages would be refused with now, its detail for an operator; None when ready."""

    def health(self) -> EngineHealth:
        """How the engine itself is."""

    async def scrape(self) -> str | None:
        """Its own metrics in Prometheus' text format, None where it has none.

        Raises `EngineUnavailable`.
        """

    def stream(self, request: EngineRequest) -> AsyncGenerator[EngineEvent]:
        """Read one page: text deltas, then exactly one `Finished`.

        Closing the iterator cancels the work in the engine. Raises `EngineUnavailable`,
        `EngineStarting` or `EngineRejected`.
        """
