"""A steady load of pages, each answer judged: what callers notice while something happens.

Runs as a process of its own, in a namespace from which the service's address can be reached:
`python -m tests.cluster.steady URL --rate 2`. Prints the time when its callers begin. At SIGUSR1
they make way for new ones, once all that they sent is answered, and the time of these follows.
Ends at SIGTERM or SIGINT, likewise after all answers, with what it noted as one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import aiohttp

from tests.corpus import character_error_rate
from tests.engine.papers import Paper, invoices

# The tiny checkpoint slips now and then. Another caller's page differs in all its digits, which
# are a third of the text.
ERROR_RATE_MAX = 0.2
_PAPERS = 64
_CALLERS = 8
# They ask for next to nothing, but each has a connection at all times: so many that some hold one
# to every pod.
_LISTENERS = 16
_LISTEN_EVERY_S = 2.0
# Refusals that tell a caller to come back; any other failure has lost the page.
_COME_BACK = (429, 503)
_TIMEOUT = aiohttp.ClientTimeout(total=120, sock_connect=5)

Kind = Literal["answered", "refused", "lost"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one request; `sent_at` and `done_at` are Unix seconds.

    `detail` is the problem's code, or why the page is lost.
    """

    sent_at: float
    done_at: float
    kind: Kind
    detail: str = ""


@dataclass(slots=True)
class Noted:
    """`asked_to_leave_at`: Unix seconds of answers to listeners that end their connection."""

    outcomes: list[Outcome] = field(default_factory=list)
    asked_to_leave_at: list[float] = field(default_factory=list)

    def between(self, begin: float, end: float) -> Noted:
        """What was sent, and who was asked to leave, from `begin` to before `end`."""
        return Noted(
            [outcome for outcome in self.outcomes if begin <= outcome.sent_at < end],
            [at for at in self.asked_to_leave_at if begin <= at < end],
        )


@dataclass(frozen=True, slots=True)
class Totals:
    """The outcomes of one event, counted."""

    sent: int
    answered: int
    refused: int
    lost: int

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Totals:
        kinds = [outcome.kind for outcome in outcomes]
        return cls(len(kinds), kinds.count("answered"), kinds.count("refused"), kinds.count("lost"))


def judged(paper: Paper, status: int, headers: Any, body: bytes) -> tuple[Kind, str]:
    """Answered with the caller's own text, refused with a time to come back, or lost."""
    try:
        answer = json.loads(body)
    except ValueError:
        return "lost", f"{status} without JSON"
    if status == 200:
        wrong = character_error_rate(paper.text, answer["text"])
        return (
            ("answered", "") if wrong <= ERROR_RATE_MAX else ("lost", f"wrong text ({wrong:.2f})")
        )
    code = str(answer.get("code", status))
    clean = status in _COME_BACK and "Retry-After" in headers
    return ("refused" if clean else "lost"), code


async def _send(http: aiohttp.ClientSession, url: str, paper: Paper) -> Outcome:
    sent_at = time.time()
    try:
        async with http.post(
            url, data=paper.png, headers={"Content-Type": "image/png"}
        ) as response:
            body = await response.read()
            kind, detail = judged(paper, response.status, response.headers, body)
    except (aiohttp.ClientError, TimeoutError) as error:
        kind, detail = "lost", f"{type(error).__name__}: {error}"
    return Outcome(sent_at, time.time(), kind, detail)


async def _listen(http: aiohttp.ClientSession, url: str, noted: Noted) -> None:
    """Hold a connection for ever; who is asked to leave takes a new one."""
    while True:
        with suppress(aiohttp.ClientError, TimeoutError):  # pages tell what gets no answer
            async with http.get(url) as response:
                await response.read()
                if response.headers.get("Connection", "").lower() == "close":
                    noted.asked_to_leave_at.append(time.time())
        await asyncio.sleep(_LISTEN_EVERY_S)


def _caller() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
    return aiohttp.ClientSession(timeout=_TIMEOUT, connector=connector)


async def send_steadily(
    url: str, rate_per_s: float, stop: asyncio.Event, over: asyncio.Event
) -> Noted:
    """Send pages at random times, `rate_per_s` on average, until `stop`; wait for the answers.

    Several callers take turns, each with connections of its own that it keeps alive, as the
    services that call do. Beside them listeners hold theirs. At `over`, which is cleared, they are
    done when they have been answered, and others follow.
    """
    rng = random.Random(time.time_ns())
    papers = list(invoices(_PAPERS, seed=rng.randrange(10**6)))
    noted = Noted()

    async def send(http: aiohttp.ClientSession, paper: Paper) -> None:
        noted.outcomes.append(await _send(http, url + "/ocr", paper))

    while not stop.is_set():
        over.clear()
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            callers = [await stack.enter_async_context(_caller()) for _ in range(_CALLERS)]
            listeners = [await stack.enter_async_context(_caller()) for _ in range(_LISTENERS)]
            listening = [
                group.create_task(_listen(http, f"{url}/v1/options", noted)) for http in listeners
            ]
            sys.stdout.write(f"{time.time()}\n")
            sys.stdout.flush()
            while not over.is_set():
                group.create_task(send(rng.choice(callers), rng.choice(papers)))
                with suppress(TimeoutError):
                    async with asyncio.timeout(rng.expovariate(rate_per_s)):
                        await over.wait()
            for task in listening:
                task.cancel()
    noted.outcomes.sort(key=lambda outcome: outcome.sent_at)
    return noted


async def _until_signal(url: str, rate_per_s: float) -> Noted:
    stop, over = asyncio.Event(), asyncio.Event()

    def end() -> None:
        stop.set()
        over.set()

    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, end)
    loop.add_signal_handler(signal.SIGUSR1, over.set)
    return await send_steadily(url, rate_per_s, stop, over)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the service, for example http://10.96.1.2:7860")
    parser.add_argument("--rate", type=float, default=2.0, help="pages per second")
    given = parser.parse_args()
    noted = asyncio.run(_until_signal(given.url, given.rate))
    json.dump(asdict(noted), sys.stdout)


if __name__ == "__main__":
    main()
