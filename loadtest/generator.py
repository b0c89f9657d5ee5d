"""Sends one step's load on its own schedule and notes what came of every request.

The window begins when the load is what it is to be: every caller of a closed loop has heard
something, or the first of an open loop; without a warm-up, at once. It is long enough for two
answers of the slowest of them. The load is kept up behind it until all that was due in it has
ended: otherwise the last requests, which have the server to themselves, would flatter it.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from loadtest.outcomes import Outcome, Reply, Sample
from loadtest.schedule import Closed, Load, Open, Replay, due_times

# A caller that got no answer and no Retry-After comes back after this.
PAUSE_S = 1.0
_TICK_S = 0.02
# A window in which a caller is answered less often says nothing of it.
_ANSWERS_MIN = 2

# Sends one request and says how it ended; raises nothing but CancelledError.
Send = Callable[[], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a step: not counted, then counted, both at the least; and a caller's patience
    from the time that its request was due.
    """

    warm_up_s: float
    measure_s: float
    timeout_s: float

    @property
    def end_s(self) -> float:
        return self.warm_up_s + self.measure_s


@dataclass(slots=True)
class Record:
    """A step's requests with the window as it was, and how the generator itself fared:
    `ticks_late_s` is how late its event loop ran a timer, `cpu_share` how much of a core it used.
    """

    timing: Timing
    samples: list[Sample] = field(default_factory=list)
    ticks_late_s: list[float] = field(default_factory=list)
    cpu_share: float = 0.0


async def run_step(
    send: Send, load: Load, timing: Timing, *, in_flight_max: int = 1000, seed: int = 0
) -> Record:
    """Put `load` on the server for one step. Nothing is in flight when it returns.

    In open loop at most `in_flight_max` are in flight; what is due beyond is never sent.
    """
    rng = random.Random(seed)  # noqa: S311 - arrivals
    if isinstance(load, Closed):
        in_flight_max = load.in_flight
    step = _Step(send, timing, in_flight_max, rng)
    ticker = asyncio.ensure_future(step.tick())
    used_s = time.process_time()
    try:
        await (step.closed(load) if isinstance(load, Closed) else step.open(load))
    finally:
        ticker.cancel()
        await asyncio.gather(ticker, return_exceptions=True)
    step.record.cpu_share = (time.process_time() - used_s) / max(step.now(), 1e-9)
    return step.record


class _Step:
    def __init__(self, send: Send, timing: Timing, in_flight_max: int, rng: random.Random) -> None:
        self._send = send
        self._timing = timing
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        self._counted_pending = 0
        # A schedule that is behind is not to be cut off. A closed loop has none.
        self._next_due = math.inf
        self._warmed_up = False
        # Firsts that have not ended: the server is not yet under this load.
        self._firsts = 0
        self._slowest_first_s = 0.0
        self._end = math.inf
        self._over = asyncio.Event()
        self._loop.call_at(self._began + timing.warm_up_s, self._warm_up_over)
        self.record = Record(timing)

    def now(self) -> float:
        return self._loop.time() - self._began

    async def tick(self) -> None:
        while True:
            due = self.now() + _TICK_S
            await asyncio.sleep(_TICK_S)
            if due >= self._timing.warm_up_s:
                self.record.ticks_late_s.append(max(0.0, self.now() - due))

    async def closed(self, load: Closed) -> None:
        """Callers begin at random in the warm-up: begun together, they would stay together."""
        self._firsts = load.in_flight
        spread_s = min(self._timing.warm_up_s, 5.0)
        begins = [self._rng.uniform(0, spread_s) for _ in range(load.in_flight)]
        callers = [asyncio.ensure_future(self._caller(begin)) for begin in begins]
        await self._finish(callers)

    async def _caller(self, begin: float) -> None:
        await self._pause(begin)
        first = True
        while not self._over.is_set():
            reply = await self._one(self.now(), first=first)
            first = False
            if reply.outcome is not Outcome.ANSWERED:
                await self._pause(PAUSE_S if reply.retry_after_s is None else reply.retry_after_s)

    async def open(self, load: Open | Replay) -> None:
        requests: list[asyncio.Future[Reply]] = []
        for due in due_times(load, self._rng):
            self._next_due = due
            self._look()
            await self._pause(due - self.now())
            if self._over.is_set():
                break
            first = not requests
            self._firsts += first
            requests.append(asyncio.ensure_future(self._one(due, first=first)))
        await self._finish(requests)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not beyond the end of the step."""
        if seconds <= 0:
            # A generator that is behind must still let its requests begin.
            await asyncio.sleep(0)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    async def _finish(
        self, running: Sequence[asyncio.Future[Reply] | asyncio.Future[None]]
    ) -> None:
        try:
            await asyncio.gather(*running)
        except BaseException:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            raise

    async def _one(self, due: float, *, first: bool) -> Reply:
        counted = self._timing.warm_up_s <= due < self._end
        self._counted_pending += counted
        sent = self.now()
        try:
            reply = await self._sent(due)
        finally:
            self._counted_pending -= counted
        unsent = reply.outcome is Outcome.UNSENT
        sample = Sample(due, None if unsent else sent, self.now(), self._relative(reply))
        self.record.samples.append(sample)
        if first:
            self._firsts -= 1
            if sample.answered:
                self._slowest_first_s = max(self._slowest_first_s, sample.latency_s)
            if self._warmed_up and not self._firsts and self._end == math.inf:
                self._begin_window(self.now())
        self._look()
        return reply

    async def _sent(self, due: float) -> Reply:
        if self._in_flight >= self._in_flight_max:
            return Reply(Outcome.UNSENT)
        self._in_flight += 1
        try:
            async with asyncio.timeout_at(self._began + due + self._timing.timeout_s):
                return await self._send()
        except TimeoutError:
            return Reply(Outcome.TIMED_OUT)
        finally:
            self._in_flight -= 1

    def _relative(self, reply: Reply) -> Reply:
        if reply.first_at is None:
            return reply
        return Reply(
            reply.outcome, reply.code, reply.first_at - self._began, reply.retry_after_s,
            reply.degraded,
        )  # fmt: skip

    def _warm_up_over(self) -> None:
        self._warmed_up = True
        if not self._firsts or not self._timing.warm_up_s:
            self._begin_window(self._timing.warm_up_s)

    def _begin_window(self, begin: float) -> None:
        seconds = max(self._timing.measure_s, _ANSWERS_MIN * self._slowest_first_s)
        self.record.timing = Timing(begin, seconds, self._timing.timeout_s)
        self._end = begin + seconds
        self._loop.call_at(self._began + self._end + _TICK_S, self._look)

    def _look(self) -> None:
        begun = self._next_due >= self._end
        if begun and self.now() >= self._end and not self._counted_pending:
            self._over.set()
