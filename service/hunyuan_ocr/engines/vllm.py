"""HunyuanOCR behind vLLM's OpenAI server: pages are streamed, the engine is watched.

No page is sent before the isolation self-test has shown that this very engine process keeps its
callers apart, and none while the engine is down or hung.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal

import aiohttp

from hunyuan_ocr.documents.document import (
    DocumentKind,
    ImageEncoding,
    PageSize,
    PreparedImage,
)
from hunyuan_ocr.engines.base import (
    Capabilities,
    EngineEvent,
    EngineRequest,
    Finished,
    TextDelta,
)
from hunyuan_ocr.engines.chat import ChatStream, request_body, with_image
from hunyuan_ocr.engines.heartbeat import Heartbeat, Pulse, read_sample
from hunyuan_ocr.engines.isolation import (
    CodedPage,
    IsolationReport,
    check_isolation,
    prefills_shared,
)
from hunyuan_ocr.engines.visual_tokens import ASPECT_MAX, SIDE, PixelBounds, pixels_within
from hunyuan_ocr.engines.vllm_http import VllmHttp, refused
from hunyuan_ocr.errors import (
    EngineRejected,
    EngineStarting,
    EngineUnavailable,
    ImageTooLarge,
    InvalidField,
    OcrError,
    Unavailable,
)
from hunyuan_ocr.tasks.catalogue import Generation, Task
from hunyuan_ocr.tasks.chat import SafeChat
from hunyuan_ocr.tasks.prompts import TaskRequest, build_prompt

_log = logging.getLogger(__name__)

_CHAT = "/v1/chat/completions"
_POLL_PERIOD_S = 1.0
_POLL_TIMEOUT_S = 3.0
_HUNG_RETRY_AFTER_S = 10.0
_RESTART_RETRY_AFTER_S = 30.0
_SELF_TEST_TIMEOUT_S = 60.0
_SELF_TEST_OUTPUT_TOKENS = 128
_SELF_TEST_PAGES_MAX = 32
# The chat template around image and prompt takes fewer tokens than this.
_TEMPLATE_TOKENS = 32
_OUTPUT_TOKENS_MIN = 64


def _headers(request_id: str) -> dict[str, str]:
    return {"Content-Type": "application/json", "X-Request-Id": request_id}


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """How the engine is to be used.

    `pixels` are the bounds of the checkpoint's preprocessor_config.json, `page_pixels` what we
    show it at most, `encoder_tokens` vLLM's --max-num-batched-tokens, which bounds one image.
    """

    base_url: str
    generation: Generation
    concurrency: int
    pixels: PixelBounds
    page_pixels: int
    encoder_tokens: int
    max_output_tokens: int
    hung_after_s: float
    isolation_check: Literal["enforce", "warn"]


class VllmEngine:
    """Speaks the engine protocol to one vLLM server."""

    def __init__(
        self, options: VllmOptions, rng: random.Random, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._rng = rng
        self._clock = clock
        self.http = VllmHttp(options.base_url)
        self._heartbeat = Heartbeat(options.hung_after_s)
        self._watching: asyncio.Task[None] | None = None
        self._refusal: Unavailable | None = EngineStarting(
            f"the engine at {options.base_url} was not reached yet"
        )
        self._model = ""
        self._max_model_len = 0
        self._answered_s = clock()
        self.isolation: IsolationReport | None = None

    @property
    def capabilities(self) -> Capabilities:
        options = self._options
        bounds = (options.page_pixels, options.pixels.max_pixels)
        return Capabilities(
            engine="vllm",
            model=self._model or "HunyuanOCR",
            tasks=frozenset(Task),
            encoding=ImageEncoding.JPEG,
            min_pixels=options.pixels.min_pixels,
            max_pixels=min(*bounds, pixels_within(options.encoder_tokens)),
            max_output_tokens=options.max_output_tokens,
            concurrency=options.concurrency,
            accepts=frozenset({DocumentKind.JPEG, DocumentKind.PNG, DocumentKind.WEBP}),
            generation=options.generation,
        )

    async def start(self) -> None:
        """Start watching the engine; it may come up later, and `refusal` says so until then."""
        self.http.open()
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        self._refusal = EngineUnavailable("the service is shutting down")
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self.http.close()

    def refusal(self) -> Unavailable | None:
        return self._refusal

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineEvent]:
        if self._refusal is not None:
            raise self._refusal.for_caller()
        async with contextlib.aclosing(self._stream(request)) as events:
            async for event in events:
                yield event

    async def _stream(self, request: EngineRequest) -> AsyncGenerator[EngineEvent]:
        body = request_body(
            request,
            model=self._model,
            generation=self._options.generation,
            max_tokens=self._output_budget(request),
        )
        chat = ChatStream()
        async with self.http.post(_CHAT, body, _headers(request.request_id)) as response:
            if response.status != 200:
                raise refused(response.status)
            while not chat.done:
                data = await self.http.read_some(response)
                if not data:
                    raise EngineUnavailable("the engine's answer broke off")
                for event in _understood(chat, data, request):
                    yield event

    def forward(
        self, chat: SafeChat, request_id: str
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a chat request; its answer of any status, as `VllmHttp.post`.

        Raises what pages are refused with now.
        """
        if self._refusal is not None:
            raise self._refusal.for_caller()
        body = {"model": self._model, "max_tokens": self._chat_budget(chat)} | chat.body
        if chat.image is None:
            data = json.dumps(body).encode()
        else:
            data = with_image(body, chat.image.digits, chat.image.media_type)
        return self.http.post(_CHAT, data, _headers(request_id))

    def _chat_budget(self, chat: SafeChat) -> int:
        """Tokens for an answer whose caller named no limit; the engine refuses what is too much."""
        size = chat.image.size if chat.image else None
        image = self._options.pixels.tokens(size.width, size.height) if size else 0
        left = self._max_model_len - image - chat.text_bytes - _TEMPLATE_TOKENS
        return max(1, min(self._options.max_output_tokens, left))

    def check_image(self, image: PageSize) -> None:
        """Raise ImageTooLarge for an image that vLLM would refuse, or die of."""
        if self._options.pixels.tokens(image.width, image.height) > self._options.encoder_tokens:
            raise ImageTooLarge("the image takes more tokens than the engine's encoder holds")
        if max(image.width, image.height) > ASPECT_MAX * min(image.width, image.height):
            raise ImageTooLarge(f"the image is longer than {ASPECT_MAX} times its width")

    def _output_budget(self, request: EngineRequest) -> int:
        """Tokens left for the answer.

        A character never takes more tokens than UTF-8 bytes, so this errs to the safe side.
        Raises ImageTooLarge or InvalidField, whichever leaves too few.
        """
        image = self._options.pixels.tokens(request.image.width, request.image.height)
        left = self._max_model_len - image - _TEMPLATE_TOKENS
        if image > self._options.encoder_tokens or left < _OUTPUT_TOKENS_MIN:
            raise ImageTooLarge("the image leaves the model no room for an answer")
        left -= len(request.prompt.encode())
        if left < _OUTPUT_TOKENS_MIN:
            raise InvalidField("instruction and fields are too long for the model's context")
        return min(request.max_output_tokens, left)

    # Watching the engine

    async def _watch(self) -> None:
        """For ever: who answers, since when, and whether it gets on with its work."""
        while True:
            try:
                async with asyncio.timeout(_POLL_TIMEOUT_S):
                    await self.http.get("/health")
                    sample = read_sample(await self.http.get("/metrics"))
            except TimeoutError:
                # Slow is not dead: a machine short of CPU answers late, and then goes on.
                if self._clock() - self._answered_s >= self._options.hung_after_s:
                    self._hangs("the engine hangs: it does not answer")
            except (aiohttp.ClientError, OSError):
                self._lost(f"the engine at {self._options.base_url} does not answer")
            except ValueError as error:
                self._not_understood(error)
            else:
                await self._judge(self._heartbeat.observe(self._clock(), sample, self.http.waiting))
                # After judging, which may take a self-test's time.
                self._answered_s = self._clock()
            await asyncio.sleep(_POLL_PERIOD_S)

    async def _judge(self, pulse: Pulse) -> None:
        if pulse is Pulse.RESTARTED:
            await self._get_to_know()
        elif pulse is Pulse.HUNG:
            self._hangs("the engine hangs: it makes no step while work waits")
        else:
            self._admit()

    def _hangs(self, reason: str) -> None:
        hung = EngineUnavailable(reason, retry_after_s=_HUNG_RETRY_AFTER_S)
        self._refuse(hung)
        self.http.abort(hung)

    def _not_understood(self, error: ValueError) -> None:
        self._heartbeat.forget()
        self._lost(f"what answers at {self._options.base_url} is not vLLM as we know it: {error}")

    def _lost(self, reason: str) -> None:
        """Nobody answers. The same process coming back is known by its start time."""
        kind = EngineUnavailable if self._model else EngineStarting
        self._refuse(kind(reason, retry_after_s=_RESTART_RETRY_AFTER_S))

    async def _get_to_know(self) -> None:
        """A process that we have not seen before: its model, and whether it keeps pages apart."""
        self.isolation = None
        self._refuse(EngineStarting("the isolation self-test is running", retry_after_s=5.0))
        try:
            async with asyncio.timeout(_SELF_TEST_TIMEOUT_S):
                self._model, self._max_model_len = _read_card(await self.http.get("/v1/models"))
                self._check_context()
                self.isolation = await self.check_isolation()
        except ValueError as error:
            self._not_understood(error)
            return
        except (OcrError, aiohttp.ClientError, TimeoutError, OSError) as error:
            why = error.detail if isinstance(error, OcrError) else type(error).__name__
            self._heartbeat.forget()  # so that the next poll tries again
            self._lost(f"the isolation self-test broke off: {why}")
            return
        _log.info(
            "isolation self-test",
            extra={
                "fields": {
                    "isolation": self.isolation.verdict,
                    "why": self.isolation.detail,
                    "seconds": round(self.isolation.seconds, 3),
                }
            },
        )
        if self.isolation.verdict == "inconclusive" and self._enforced:
            self._heartbeat.forget()  # so that the next poll tries again
        self._admit()

    @property
    def _enforced(self) -> bool:
        return self._options.isolation_check == "enforce"

    def _check_context(self) -> None:
        """Raise EngineUnavailable where the largest page we would show leaves no room to answer."""
        largest = self.capabilities.max_pixels // SIDE**2 * 2
        if largest + _TEMPLATE_TOKENS + _OUTPUT_TOKENS_MIN > self._max_model_len:
            raise EngineUnavailable(
                f"pages may take {largest} tokens of the engine's {self._max_model_len}: lower "
                "HYOCR_VLLM_PAGE_PIXELS or raise the engine's --max-model-len"
            )

    def _admit(self) -> None:
        """Let pages in, if the self-test allows it."""
        report = self.isolation
        if report is None or (report.verdict != "isolated" and self._enforced):
            verdict = "not run" if report is None else f"{report.verdict}: {report.detail}"
            self._refuse(EngineUnavailable(f"isolation self-test {verdict}"))
        elif self._refusal is not None:
            self._refusal = None
            _log.info("engine ready", extra={"fields": {"model": self._model}})

    def _refuse(self, refusal: Unavailable) -> None:
        if self._refusal is None or self._refusal.detail != refusal.detail:
            _log.warning("engine not ready", extra={"fields": {"reason": refusal.detail}})
        self._refusal = refusal

    # The isolation self-test

    async def check_isolation(self) -> IsolationReport:
        """Read coded pages together and look for one caller's codes in another's answer.

        Raises what reading a page raises, and aiohttp.ClientError.
        """
        prompt = build_prompt(TaskRequest(task=Task.TEXT), self._options.generation)
        prompt_tokens: list[int] = []
        scraped = await self.http.get("/metrics")

        async def read(page: CodedPage) -> str:
            request = EngineRequest(
                image=PreparedImage(page.image, "image/png", page.width, page.height),
                task=Task.TEXT,
                prompt=prompt,
                max_output_tokens=_SELF_TEST_OUTPUT_TOKENS,
                request_id=f"isolation-{self._rng.getrandbits(64):016x}",
            )
            text = ""
            async for event in self._stream(request):
                if isinstance(event, TextDelta):
                    text += event.text
                elif isinstance(event, Finished):
                    prompt_tokens.append(event.usage.prompt)
            return text

        async def shared_step() -> bool:
            nonlocal scraped
            before, scraped = scraped, await self.http.get("/metrics")
            tokens = prompt_tokens.copy()
            prompt_tokens.clear()
            return prefills_shared(
                before, scraped, tokens, step_budget_tokens=self._options.encoder_tokens
            )

        return await check_isolation(
            read, shared_step, self._rng, self._clock, concurrency=self._pages_together
        )

    @property
    def _pages_together(self) -> int:
        """Enough to share a step, few enough to be drawn and compared in a moment."""
        return min(max(4, self._options.concurrency), _SELF_TEST_PAGES_MAX)


def _understood(chat: ChatStream, data: bytes, request: EngineRequest) -> Iterator[EngineEvent]:
    """The events in `data`. Raises InvalidField where the engine cannot follow a schema."""
    try:
        yield from chat.feed(data)
    except EngineRejected:
        if request.json_schema is None:
            raise
        raise InvalidField("json_schema: the engine cannot follow this schema") from None


def _read_card(models: str) -> tuple[str, int]:
    """The id and the context length of the model served. Raises ValueError."""
    try:
        card = json.loads(models)["data"][0]
        return str(card["id"]), int(card["max_model_len"])
    except (LookupError, TypeError):
        raise ValueError("it lists no model") from None
