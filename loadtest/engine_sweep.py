"""Every engine of a grid, one after the other, under the same load."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from loadtest.commands import CONSOLE, CannotBegin, Setup, experiment, target
from loadtest.engine_table import markdown
from loadtest.engines import (
    Cell,
    Ended,
    Outing,
    StartFailed,
    check,
    command,
    environment,
    ran_out_of_memory,
    running,
)
from loadtest.schedule import Closed

_OUTINGS = TypeAdapter(list[Outing])


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """`template`: how an engine starts; `card_gb`: of the card that it is to see, if smaller."""

    template: str
    cells: list[Cell]
    runs: int
    concurrency: int
    port: int
    card_gb: float | None
    start_timeout_s: float


def run_engines(setup: Setup, plan: EnginePlan, folder: Path) -> None:
    """Run them all, print the table and write engines.json and engines.md, also when interrupted.

    Raises CommandUnusable, PagesUnusable, KeyboardInterrupt.
    """
    check(plan.template, plan.cells)
    folder.mkdir(parents=True, exist_ok=True)
    outings: list[Outing] = []
    try:
        asyncio.run(_all(setup, plan, folder, outings))
    finally:
        table = markdown(outings)
        (folder / "engines.json").write_bytes(_OUTINGS.dump_json(outings, indent=1))
        (folder / "engines.md").write_text(table)
        # Rich's own tables cut off the columns that a console has no room for.
        CONSOLE.print(table, markup=False, highlight=False, soft_wrap=True)


async def _all(setup: Setup, plan: EnginePlan, folder: Path, outings: list[Outing]) -> None:
    for run in range(plan.runs):
        for number, cell in enumerate(plan.cells):
            CONSOLE.print(f"{cell}, run {run + 1} of {plan.runs}", highlight=False)
            log = folder / f"engine-{number}-{run}.log"
            outings.append(outing := await _one(setup, plan, cell, log))
            if outing.why:
                CONSOLE.print(f"{outing.why}; its log: {log}", highlight=False)


async def _one(setup: Setup, plan: EnginePlan, cell: Cell, log: Path) -> Outing:
    words = command(plan.template, cell, plan.port)
    variables = environment(plan.card_gb, os.environ)
    after_s, step, why = 0.0, None, ""
    try:
        async with (
            running(words, variables, log, setup.url, plan.start_timeout_s) as after_s,
            target(setup) as asked,
            experiment(setup, asked.send, None) as steps,
        ):
            step = await steps.measure(Closed(plan.concurrency), 0)
    except (StartFailed, Ended, CannotBegin) as error:
        why = str(error)
    return Outing(cell, after_s, step, ran_out_of_memory(log), why)
