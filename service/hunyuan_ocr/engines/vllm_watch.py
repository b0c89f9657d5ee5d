"""Watches one vLLM server: does it answer, get on with its work, and keep its callers apart?"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import aiohttp

from hunyuan_ocr.engines.base import EngineHealth
from hunyuan_ocr.engines.heartbeat import Heartbeat, Pulse, read_sample
from hunyuan_ocr.engines.isolation import IsolationReport
from hunyuan_ocr.engines.vllm_http import VllmHttp
from hunyuan_ocr.errors import EngineStarting, EngineUnavailable, OcrError, Unavailable

_log = logging.getLogger(__name__)

_POLL_PERIOD_S = 1.0
_POLL_TIMEOUT_S = 3.0
_HUNG_RETRY_AFTER_S = 10.0
_RESTART_RETRY_AFTER_S = 30.0
_SELF_TEST_TIMEOUT_S = 60.0
_TOKEN_TIMEOUT_S = 30.0


class EngineWatch:
    """`refusal` is what pages are refused with now, None when they may be sent.

    `model` and `max_model_len` are what the server says of itself, `isolation` what `self_test`
    said of the process that answers now. `context_needed` is the number of tokens that its
    context must hold for the largest page.
    """

    def __init__(
        self,
        http: VllmHttp,
        self_test: Callable[[], Awaitable[IsolationReport]],
        *,
        hung_after_s: float,
        enforce_isolation: bool,
        context_needed: int,
        clock: Callable[[], float],
        on_preemption: Callable[[], None] | None = None,
    ) -> None:
        self._http = http
        self._self_test = self_test
        self._hung_after_s = hung_after_s
        self._enforce_isolation = enforce_isolation
        self._context_needed = context_needed
        self._clock = clock
        self._on_preemption = on_preemption
        self._heartbeat = Heartbeat(hung_after_s)
        self._met = False
        self._answered_s = clock()
        self._silent = True
        self._given_up = 0
        self._watching: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self.refusal: Unavailable | None = EngineStarting(
            f"the engine at {http.base_url} was not reached yet"
        )
        self.model = ""
        self.max_model_len = 0
        self.isolation: IsolationReport | None = None

    def start(self) -> None:
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        self.refusal = EngineUnavailable("the service is shutting down")
        tasks = [task for task in (self._watching, self._asking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def health(self) -> EngineHealth:
        """Whether it answers, and for how long it has been dead or hung since it was met."""
        reason = self.refusal.detail if self.refusal else ""
        since_s = self._answered_s if self._silent else self._heartbeat.hung_since_s
        dead_for_s = self._clock() - since_s if self._met and since_s is not None else 0.0
        leaks = self.isolation is not None and self.isolation.verdict == "leaking"
        return EngineHealth(not self._silent, dead_for_s, reason, leaks)

    async def _watch(self) -> None:
        """For ever: who answers, since when, and whether it gets on with its work."""
        while True:
            try:
                async with asyncio.timeout(_POLL_TIMEOUT_S):
                    await self._http.get("/health")
                    sample = read_sample(await self._http.get("/metrics"))
            except TimeoutError:
                # Slow is not dead: a machine short of CPU answers late, and then goes on.
                self._silent = self._clock() - self._answered_s >= self._hung_after_s
                if self._silent:
                    self._hangs("the engine hangs: it does not answer")
            except (aiohttp.ClientError, OSError):
                self._silent = True
                self._lost(f"the engine at {self._http.base_url} does not answer")
            except ValueError as error:
                self._answers()
                self._not_understood(error)
            else:
                self._answers()
                if self._on_preemption is not None and self._heartbeat.preempted(sample):
                    self._on_preemption()
                sent, self._given_up = self._http.waiting + self._given_up, 0
                await self._judge(self._heartbeat.observe(self._clock(), sample, sent))
                # After judging, which may take a self-test's time.
                self._answered_s = self._clock()
            await asyncio.sleep(_POLL_PERIOD_S)

    def _answers(self) -> None:
        self._met, self._silent, self._answered_s = True, False, self._clock()

    async def _judge(self, pulse: Pulse) -> None:
        if pulse is Pulse.RESTARTED:
            await self._get_to_know()
        elif pulse is Pulse.HUNG:
            self._hangs("the engine hangs: it makes no step while work waits")
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._show_life())
        else:
            self._admit()

    def _hangs(self, reason: str) -> None:
        hung = EngineUnavailable(reason, retry_after_s=_HUNG_RETRY_AFTER_S)
        self._refuse(hung)
        self._http.abort(hung)

    async def _show_life(self) -> None:
        """Work for a core that hangs: nobody else's is sent, and its next step shows that it lives.

        What comes of it does not matter.
        """
        with suppress(aiohttp.ClientError, OSError):
            async with asyncio.timeout(_TOKEN_TIMEOUT_S):
                await self._ask_for_a_token()

    async def _ask_for_a_token(self) -> None:
        messages = [{"role": "user", "content": "1"}]
        body = {"model": self.model, "messages": messages, "max_tokens": 1}
        await self._http.ask("/v1/chat/completions", body)

    def _not_understood(self, error: ValueError) -> None:
        self._heartbeat.forget()
        self._lost(f"what answers at {self._http.base_url} is not vLLM as we know it: {error}")

    def _lost(self, reason: str) -> None:
        """Nobody answers. The same process coming back is known by its start time."""
        kind = EngineUnavailable if self.model else EngineStarting
        self._refuse(kind(reason, retry_after_s=_RESTART_RETRY_AFTER_S))

    async def _get_to_know(self) -> None:
        """A process that we have not seen before: its model, and whether it keeps pages apart."""
        self.isolation = None
        self._refuse(EngineStarting("the isolation self-test is running", retry_after_s=5.0))
        try:
            async with asyncio.timeout(_SELF_TEST_TIMEOUT_S):
                self.model, self.max_model_len = _read_card(await self._http.get("/v1/models"))
                self._check_context()
                # An engine compiles what it does for the first time: not when it must show life.
                await self._ask_for_a_token()
                self.isolation = await self._self_test()
        except ValueError as error:
            self._not_understood(error)
            return
        except (OcrError, aiohttp.ClientError, TimeoutError, OSError) as error:
            self._given_up = int(isinstance(error, TimeoutError))
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
        if self.isolation.verdict == "inconclusive" and self._enforce_isolation:
            self._heartbeat.forget()  # so that the next poll tries again
        self._admit()

    def _check_context(self) -> None:
        """Raise EngineUnavailable where the largest page we would show leaves no room to answer."""
        if self._context_needed > self.max_model_len:
            raise EngineUnavailable(
                f"pages may need {self._context_needed} tokens of the engine's "
                f"{self.max_model_len}: lower HYOCR_VLLM_PAGE_PIXELS or raise --max-model-len"
            )

    def _admit(self) -> None:
        """Let pages in, if the self-test allows it."""
        report = self.isolation
        if report is None or (report.verdict != "isolated" and self._enforce_isolation):
            verdict = "not run" if report is None else f"{report.verdict}: {report.detail}"
            self._refuse(EngineUnavailable(f"isolation self-test {verdict}"))
        elif self.refusal is not None:
            self.refusal = None
            _log.info("engine ready", extra={"fields": {"model": self.model}})

    def _refuse(self, refusal: Unavailable) -> None:
        if self.refusal is None or self.refusal.detail != refusal.detail:
            _log.warning("engine not ready", extra={"fields": {"reason": refusal.detail}})
        self.refusal = refusal


def _read_card(models: str) -> tuple[str, int]:
    """The id and the context length of the model served. Raises ValueError."""
    try:
        card = json.loads(models)["data"][0]
        return str(card["id"]), int(card["max_model_len"])
    except (LookupError, TypeError):
        raise ValueError("it lists no model") from None
