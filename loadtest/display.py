"""What the person at the terminal sees while steps run: a bar, and a line for each that ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from loadtest.generator import Timing
from loadtest.schedule import Closed, Load
from loadtest.step import Step

_REDRAW_S = 0.25


class Display:
    """Give `began` and `ended` to an experiment. Without a terminal there are only the lines."""

    def __init__(self, console: Console, timing: Timing) -> None:
        self._console = console
        self._seconds = timing.end_s
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console,
            transient=True,
        )  # fmt: skip
        self._task = self._progress.add_task("", total=self._seconds)

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        with self._progress:
            mover = asyncio.ensure_future(self._move())
            try:
                yield
            finally:
                mover.cancel()
                await asyncio.gather(mover, return_exceptions=True)

    def began(self, load: Load) -> None:
        self._progress.reset(self._task, description=name(load), total=self._seconds)

    def ended(self, step: Step) -> None:
        self._console.print(line(step), markup=False, highlight=False, soft_wrap=True)

    async def _move(self) -> None:
        while True:
            await asyncio.sleep(_REDRAW_S)
            self._progress.update(self._task, advance=_REDRAW_S)


def name(load: Load) -> str:
    return f"{load.level:g} in flight" if isinstance(load, Closed) else f"{load.level:g}/s offered"


def line(step: Step) -> str:
    """A step in a line of text: only the counts that are not zero."""
    counts, latency = step.counts, step.latency
    unit = "in flight" if step.kind == "closed" else f"/s {step.kind}"
    shown = {
        "late": counts.late,
        **{f"refused {code}": number for code, number in counts.refused.items()},
        **{f"failed {code}": number for code, number in counts.failed.items()},
        "broken": counts.broken,
        "unreachable": counts.unreachable,
        "timed out": counts.timed_out,
        "never sent": counts.unsent,
        "degraded": counts.degraded,
    }
    parts = [f"{number} {what}" for what, number in shown.items() if number]
    p95 = f"p95 {latency.p95_s:.3f} s" if latency else "none answered"
    text = (
        f"{step.level:8g} {unit}: {step.answered_per_s:7.2f} answers/s, {p95}, "
        f"{counts.in_time} of {counts.due} in time"
    )
    limit = f"  (generator: {step.generator_limit})" if step.generator_limit else ""
    return ", ".join([text, *parts]) + limit
