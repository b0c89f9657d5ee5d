"""A steady load of pages, each answer judged: what callers notice while something happens.

Runs as a process of its own, in a namespace from which the service's address can be reached:
`python -m tests.cluster.steady URL --rate 2`. Ends at SIGTERM or SIGINT, after the answers to
everything sent are in, and prints its outcomes as one JSON array.
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
from dataclasses import asdict, dataclass
from typing import Any, Literal

import aiohttp

from tests.corpus import character_error_rate
from tests.engine.papers import Paper, invoices

# The tiny checkpoint slips now and then; a page of another caller would be wrong all over.
ERROR_RATE_MAX = 0.1
_PAPERS = 64
# Refusals that tell a caller to come back; any other failure has lost the page.
_COME_BACK = (429, 503)
_TIMEOUT = aiohttp.ClientTimeout(total=120, sock_connect=5)

Kind = Literal["answered", "refused", "lost"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one request; `sent_at` and `done_at` are Unix seconds.

    `detail` is the problem's code, or why the page is lost. `closed` tells that the service asked
    the caller to leave this connection.
    """

    sent_at: float
    done_at: float
    kind: Kind
    detail: str = ""
    closed: bool = False


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
    closed = False
    try:
        async with http.post(
            url, data=paper.png, headers={"Content-Type": "image/png"}
        ) as response:
            body = await response.read()
            closed = response.headers.get("Connection", "").lower() == "close"
            kind, detail = judged(paper, response.status, response.headers, body)
    except (aiohttp.ClientError, TimeoutError) as error:
        kind, detail = "lost", f"{type(error).__name__}: {error}"
    return Outcome(sent_at, time.time(), kind, detail, closed)


async def send_steadily(url: str, rate_per_s: float, stop: asyncio.Event) -> list[Outcome]:
    """Send pages at random times, `rate_per_s` on average, until `stop`; wait for the answers.

    Connections are kept alive and shared, as in the pool of a calling service.
    """
    rng = random.Random(time.time_ns())
    papers = list(invoices(_PAPERS, seed=rng.randrange(10**6)))
    outcomes: list[Outcome] = []
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
    async with (
        aiohttp.ClientSession(timeout=_TIMEOUT, connector=connector) as http,
        asyncio.TaskGroup() as group,
    ):

        async def send(paper: Paper) -> None:
            outcomes.append(await _send(http, url + "/ocr", paper))

        while not stop.is_set():
            group.create_task(send(rng.choice(papers)))
            try:
                async with asyncio.timeout(rng.expovariate(rate_per_s)):
                    await stop.wait()
            except TimeoutError:
                continue
    return sorted(outcomes, key=lambda outcome: outcome.sent_at)


async def _until_signal(url: str, rate_per_s: float) -> list[Outcome]:
    stop = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    return await send_steadily(url, rate_per_s, stop)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the service, for example http://10.96.1.2:7860")
    parser.add_argument("--rate", type=float, default=2.0, help="pages per second")
    given = parser.parse_args()
    outcomes = asyncio.run(_until_signal(given.url, given.rate))
    json.dump([asdict(outcome) for outcome in outcomes], sys.stdout)


if __name__ == "__main__":
    main()
