"""HunyuanOCR behind vLLM's OpenAI server: pages are streamed, the engine is watched.

No page is sent before the isolation self-test has shown that this very engine process keeps its
callers apart, and none while the engine is down or hung.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

import aiohttp
from opentelemetry.trace import Tracer

from hunyuan_ocr.documents.document import (
    Detail,
    DocumentKind,
    ImageEncoding,
    PageSize,
    PreparedImage,
)
from hunyuan_ocr.engines.base import (
    Capabilities,
    EngineEvent,
    EngineHealth,
    EngineListener,
    EngineRequest,
    Finished,
    TextDelta,
)
from hunyuan_ocr.engines.chat import ChatStream, request_body, understood, with_image
from hunyuan_ocr.engines.isolation import (
    CodedPage,
    IsolationReport,
    check_isolation,
    prefills_together,
)
from hunyuan_ocr.engines.visual_tokens import ASPECT_MAX, SIDE, PixelBounds, pixels_within
from hunyuan_ocr.engines.vllm_http import VllmHttp, refused
from hunyuan_ocr.engines.vllm_watch import EngineWatch
from hunyuan_ocr.errors import (
    EngineUnavailable,
    ImageTooLarge,
    InvalidField,
    Unavailable,
)
from hunyuan_ocr.tasks.catalogue import Generation, Task
from hunyuan_ocr.tasks.chat import SafeChat
from hunyuan_ocr.tasks.prompts import TaskRequest, build_prompt
from hunyuan_ocr.telemetry.engine_spans import NO_TRACES, EngineCall, EngineSpans

_CHAT = "/v1/chat/completions"
_SELF_TEST_OUTPUT_TOKENS = 128
_SELF_TEST_PAGES_MAX = 32
# The chat template around image and prompt takes fewer tokens than this.
_TEMPLATE_TOKENS = 32
_OUTPUT_TOKENS_MIN = 64
_SCRAPE_TIMEOUT_S = 3.0
# In the mean over languages; only to say what a request will cost.
_BYTES_PER_TOKEN = 4
# No text that means something has more, blanks included: what is over this is surely too long.
_BYTES_PER_TOKEN_MAX = 16


def _headers(request_id: str, call: EngineCall) -> dict[str, str]:
    return {"Content-Type": "application/json", "X-Request-Id": request_id, **call.headers}


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """How the engine is to be used.

    `pixels` are the bounds of the checkpoint's preprocessor_config.json, `page_pixels` what we
    show it of a page at most, `high_pixels` the same where a caller asks for high detail,
    `encoder_tokens` vLLM's --max-num-batched-tokens, which bounds one image.
    """

    base_url: str
    generation: Generation
    concurrency: int
    pixels: PixelBounds
    page_pixels: int
    high_pixels: int
    encoder_tokens: int
    max_output_tokens: int
    hung_after_s: float
    isolation_check: Literal["enforce", "warn"]


class VllmEngine:
    """Speaks the engine protocol to one vLLM server."""

    def __init__(
        self,
        options: VllmOptions,
        rng: random.Random,
        listener: EngineListener | None = None,
        clock: Callable[[], float] = time.monotonic,
        tracer: Tracer = NO_TRACES,
    ) -> None:
        self._options = options
        self._rng = rng
        self._listener = listener
        self._clock = clock
        self._spans = EngineSpans(tracer, options.base_url)
        self.http = VllmHttp(options.base_url)
        self._watch = EngineWatch(
            self.http,
            self._meet,
            on_preemption=listener.preempted if listener else None,
            hung_after_s=options.hung_after_s,
            enforce_isolation=options.isolation_check == "enforce",
            context_needed=self._largest_image_tokens() + _TEMPLATE_TOKENS + _OUTPUT_TOKENS_MIN,
            clock=clock,
        )

    @property
    def capabilities(self) -> Capabilities:
        options = self._options
        return Capabilities(
            engine="vllm",
            model=self._watch.model or "HunyuanOCR",
            tasks=frozenset(Task),
            encoding=ImageEncoding.JPEG,
            min_pixels=options.pixels.min_pixels,
            max_pixels=self._max_pixels(),
            max_output_tokens=options.max_output_tokens,
            concurrency=options.concurrency,
            accepts=frozenset({DocumentKind.JPEG, DocumentKind.PNG, DocumentKind.WEBP}),
            generation=options.generation,
        )

    def _max_pixels(self) -> dict[Detail, int]:
        options = self._options
        most = min(options.pixels.max_pixels, pixels_within(options.encoder_tokens))
        usual = min(options.page_pixels, most)
        # What is smaller than the least, the model's own preprocessor enlarges again.
        low = min(usual, max(options.pixels.min_pixels, usual // 4))
        return {"low": low, "auto": usual, "high": min(options.high_pixels, most)}

    def _largest_image_tokens(self) -> int:
        """Of the worst shape: a strip one patch wide takes two tokens a patch."""
        return max(self._max_pixels().values()) // SIDE**2 * 2

    async def start(self) -> None:
        """Start watching the engine; it may come up later, and `refusal` says so until then."""
        self.http.open()
        self._watch.start()

    async def close(self) -> None:
        await self._watch.close()
        await self.http.close()

    def refusal(self) -> Unavailable | None:
        return self._watch.refusal

    def health(self) -> EngineHealth:
        return self._watch.health()

    async def scrape(self) -> str:
        try:
            async with asyncio.timeout(_SCRAPE_TIMEOUT_S):
                return await self.http.get("/metrics")
        except (aiohttp.ClientError, OSError) as error:  # its TimeoutError is an OSError
            raise EngineUnavailable("the engine does not answer") from error

    @property
    def isolation(self) -> IsolationReport | None:
        """What the self-test said of the engine process that answers now."""
        return self._watch.isolation

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineEvent]:
        if refusal := self._watch.refusal:
            raise refusal.for_caller()
        async with contextlib.aclosing(self._stream(request)) as events:
            async for event in events:
                yield event

    async def _stream(self, request: EngineRequest) -> AsyncGenerator[EngineEvent]:
        body = request_body(
            request,
            model=self._watch.model,
            generation=self._options.generation,
            max_tokens=self._output_budget(request),
        )
        chat = ChatStream()
        with self._spans.call(self._watch.model) as call:
            headers = _headers(request.request_id, call)
            async with self.http.post(_CHAT, body, headers) as response:
                if response.status != 200:
                    raise refused(response.status)
                while not chat.done:
                    data = await self.http.read_some(response)
                    if not data:
                        raise EngineUnavailable("the engine's answer broke off")
                    for event in understood(chat, data, request):
                        if isinstance(event, Finished):
                            call.finished(event.usage.prompt, event.usage.output, event.reason)
                        yield event

    @asynccontextmanager
    async def forward(
        self, chat: SafeChat, request_id: str
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, EngineCall]]:
        """Send a chat request; its answer of any status, as `VllmHttp.post`, and what is to hear
        of its end.

        Raises what pages are refused with now.
        """
        if refusal := self._watch.refusal:
            raise refusal.for_caller()
        body = {"model": self._watch.model, "max_tokens": self._chat_budget(chat)} | chat.body
        if chat.image is None:
            data = json.dumps(body).encode()
        else:
            data = with_image(body, chat.image.digits, chat.image.media_type)
        with self._spans.call(self._watch.model) as call:
            async with self.http.post(_CHAT, data, _headers(request_id, call)) as response:
                yield response, call

    def _chat_budget(self, chat: SafeChat) -> int:
        """Tokens for an answer whose caller named no limit; the engine refuses what is too much."""
        size = chat.image.size if chat.image else None
        image = self._options.pixels.tokens(size.width, size.height) if size else 0
        left = self._watch.max_model_len - image - chat.text_bytes - _TEMPLATE_TOKENS
        return max(1, min(self._options.max_output_tokens, left))

    def visual_work(self, chat: SafeChat) -> tuple[int, int]:
        """Tokens of a chat's prompt, most of them its image's, and the image's patches.

        Never more than the context holds. Raises InvalidField where the text alone is too long.
        """
        context = self._watch.max_model_len
        if chat.text_bytes > context * _BYTES_PER_TOKEN_MAX:
            raise InvalidField("the text of the messages is too long for the model's context")
        tokens, patches = chat.text_bytes // _BYTES_PER_TOKEN, 0
        if chat.image is not None:
            size = chat.image.size.width, chat.image.size.height
            tokens += self._options.pixels.tokens(*size)
            patches = self._options.pixels.patches(*size)
        return min(tokens, context), patches

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
        left = self._watch.max_model_len - image - _TEMPLATE_TOKENS
        if image > self._options.encoder_tokens or left < _OUTPUT_TOKENS_MIN:
            raise ImageTooLarge("the image leaves the model no room for an answer")
        left -= len(request.prompt.encode())
        if left < _OUTPUT_TOKENS_MIN:
            raise InvalidField("instruction and fields are too long for the model's context")
        return min(request.max_output_tokens, left)

    async def _meet(self) -> IsolationReport:
        """The isolation self-test, and for an engine that will be used what its listener does."""
        report = await self.check_isolation()
        used = report.verdict == "isolated" or self._options.isolation_check == "warn"
        if used and self._listener is not None:
            await self._listener.met(self.capabilities, self._stream)
        return report

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

        async def encoded_together() -> int:
            nonlocal scraped
            before, scraped = scraped, await self.http.get("/metrics")
            tokens = prompt_tokens.copy()
            prompt_tokens.clear()
            return prefills_together(
                before, scraped, tokens, step_budget_tokens=self._options.encoder_tokens
            )

        return await check_isolation(
            read, encoded_together, self._rng, self._clock, concurrency=self._pages_together
        )

    @property
    def _pages_together(self) -> int:
        """Enough to share a step, few enough to be drawn and compared in a moment."""
        return min(max(4, self._options.concurrency), _SELF_TEST_PAGES_MAX)
