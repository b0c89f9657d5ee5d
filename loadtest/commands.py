"""What the commands do, once their options are read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

from rich.console import Console

from loadtest import advice, report, results
from loadtest.display import Display
from loadtest.experiment import Conditions, Experiment
from loadtest.generator import Send
from loadtest.gpu import NvidiaSmi, SidecarMetrics, Source, watching
from loadtest.outcomes import Outcome
from loadtest.pages import Page, draw_pages, folder_pages, read_mix
from loadtest.results import Summary
from loadtest.routes import Chat, Route, build
from loadtest.schedule import Load
from loadtest.sweep import Findings, Plan, sweep
from loadtest.target import Target, connected

CONSOLE = Console(stderr=True)
_ASK_AGAIN_S = 2.0
# What no waiting mends: the wrong key, the wrong place, the wrong model.
_FOR_GOOD = {
    f"{Outcome.FAILED} {code}"
    for code in ("unauthorized", "not_found", "model_not_found", "401", "403", "404")
}


class CannotBegin(Exception):
    """There is nothing to measure; the message is for people."""


@dataclass(frozen=True, slots=True)
class Output:
    """Where results go, and whose values they are."""

    folder: Path
    profile: str
    pods: int = 1
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Setup:
    """What is asked of whom. `pages`: a folder or a mix; `metrics`: an address or `nvidia-smi`;
    `wait_s`: so long a deployment that does not answer yet may take.
    """

    url: str
    route: Route
    pages: str
    distinct: int
    chat: Chat
    conditions: Conditions
    api_key: str | None = None
    metrics: str | None = None
    about: dict[str, str] = field(default_factory=dict)
    wait_s: float = 0.0

    def drawn(self) -> list[Page]:
        """Raises PagesUnusable."""
        if Path(self.pages).is_dir():
            return folder_pages(Path(self.pages))
        return draw_pages(read_mix(self.pages), self.distinct)

    def source(self) -> Source | None:
        if self.metrics is None:
            return None
        return NvidiaSmi() if self.metrics == "nvidia-smi" else SidecarMetrics(self.metrics)

    def described(self) -> dict[str, str]:
        timing = self.conditions.timing
        return {
            **self.about,
            "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "url": self.url + self.route,
            "mix": self.pages,
            "seconds": f"{timing.warm_up_s:g} not counted, {timing.measure_s:g} counted",
            "kit": version("hunyuan-ocr"),
        }


@asynccontextmanager
async def target(setup: Setup) -> AsyncIterator[Target]:
    """The deployment, which has answered a first request. Raises CannotBegin, PagesUnusable."""
    requests = [build(setup.route, page, setup.chat) for page in setup.drawn()]
    async with connected(setup.url, setup.route, requests, setup.api_key) as found:
        until = time.monotonic() + setup.wait_s
        while why := await _unready(found, setup.conditions.timing.timeout_s):
            if time.monotonic() >= until or why in _FOR_GOOD:
                raise CannotBegin(f"a first request was not answered: {why}")
            await asyncio.sleep(_ASK_AGAIN_S)
        yield found


async def _unready(asked: Target, timeout_s: float) -> str:
    """Why a request gets no answer; empty when it does."""
    try:
        async with asyncio.timeout(timeout_s):
            reply = await asked.send()
    except TimeoutError:
        return Outcome.TIMED_OUT
    return "" if reply.outcome is Outcome.ANSWERED else f"{reply.outcome} {reply.code}".strip()


@asynccontextmanager
async def experiment(setup: Setup, send: Send, log: TextIO | None) -> AsyncIterator[Experiment]:
    """Steps that are shown as they run."""
    display = Display(CONSOLE, setup.conditions.timing)
    async with display.shown(), watching(setup.source()) as watch:
        yield Experiment(send, setup.conditions, watch, log, display.began, display.ended)


def measure(
    setup: Setup, todo: Callable[[Experiment, Findings], Awaitable[None]], out: Output
) -> None:
    """Do `todo` with the deployment, and write what was found, also when interrupted.

    Raises CannotBegin, PagesUnusable, KeyboardInterrupt.
    """
    found = Findings()
    out.folder.mkdir(parents=True, exist_ok=True)

    async def everything() -> None:
        with (out.folder / "requests.jsonl").open("w") as log:
            async with target(setup) as asked, experiment(setup, asked.send, log) as steps:
                await todo(steps, found)

    try:
        asyncio.run(everything())
    finally:
        if found.steps:
            summary = Summary(setup.described(), setup.conditions.slo, found)
            write([summary], out)


def run(setup: Setup, load: Load, out: Output) -> None:
    """One step. Raises as `measure`."""

    async def one(steps: Experiment, found: Findings) -> None:
        found.steps.append(await steps.measure(load, 0))

    measure(setup, one, out)


def sweep_all(setup: Setup, plan: Plan, out: Output) -> None:
    """Steps until knee and promise are known. Raises as `measure`."""

    async def all_steps(steps: Experiment, found: Findings) -> None:
        await sweep(steps.measure, plan, found)

    measure(setup, all_steps, out)


def write(summaries: Sequence[Summary], out: Output) -> None:
    """The report of all, and of a single one its figures; says what was found."""
    out.folder.mkdir(parents=True, exist_ok=True)
    if len(summaries) == 1:
        (summary,) = summaries
        text = results.to_json(summary)
        (out.folder / "summary.json").write_text(text + "\n")
        (out.folder / "steps.csv").write_text(results.to_csv(summary.findings))
        (out.folder / "values.yaml").write_text(advice.values(summary, out.profile, out.pods))
    svg = _curves(summaries, out.folder)
    (out.folder / "report.html").write_text(report.html(summaries, svg, out.profile, out.pods))
    for each in summaries:
        for sentence in advice.sentences(each):
            CONSOLE.print(sentence, highlight=False, soft_wrap=True)
    CONSOLE.print(f"Results are in {out.folder}", highlight=False, soft_wrap=True)
    if out.as_json and len(summaries) == 1:
        Console(soft_wrap=True, highlight=False, markup=False, emoji=False).print(text)


def _curves(summaries: Sequence[Summary], folder: Path) -> str:
    """Draw curve.png; returns the same for the report, empty where nothing can be drawn."""
    from loadtest import plots

    try:
        figure = plots.draw(summaries)
    except ImportError:
        CONSOLE.print("No curves without matplotlib: install the extra `loadtest`")
        return ""
    (folder / "curve.png").write_bytes(plots.png(figure))
    return plots.svg(figure)


def read_summary(path: Path) -> Summary:
    """Of a file, or a folder of results. Raises ResultsUnusable, OSError."""
    return results.from_json((path / "summary.json" if path.is_dir() else path).read_bytes())
