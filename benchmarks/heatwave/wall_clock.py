"""A short heat wave in real time, through the real probe and the real service, twice at once.

    make figure NAME=heatwave-wall-clock
    python -m benchmarks.heatwave.wall_clock --mild

`guarded` hears of its card, `unprotected` has no sensors and trips for no latency; else they are
alike, and get the same requests at the same times. Card and engine are models (`played.py`);
states, limit and changes are the service's own words. It takes nine minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from benchmarks.heatwave.played import LOAD, Played, played, warm
from benchmarks.heatwave.run import Run, Second
from benchmarks.heatwave.waves import BEGIN_S, ROOM_C, Wave
from benchmarks.load import post
from benchmarks.open_loop import Answer, ask, poisson
from benchmarks.standin import MODEL
from tests.gpu.fake_card import compiled

CALM_S = 40.0
WAVE_S = 240.0
AFTER_S = 200.0
RAMP_S = 20.0
# Twice what the service lets wait: with no more than that, pages admitted while the card slows
# down came just too late.
DEADLINE_S = 16.0
OFFERED_PER_S = LOAD.offered * LOAD.pages_per_s(LOAD.slots)
SIDES = ("guarded", "unprotected")
_SEED = 1
_REQUEST = post(
    "/v1/chat/completions",
    json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Read." * 200}]}).encode(),
)


def short_wave(*, mild: bool) -> Wave:
    end_s = BEGIN_S + WAVE_S
    degrees, fans = (25.0, 1.0) if mild else (20.0, 0.0)

    def inlet_c(at: float) -> float:
        part = min((at - BEGIN_S) / RAMP_S, (end_s - at) / RAMP_S, 1.0)
        return ROOM_C + degrees * max(0.0, part)

    def airflow(at: float) -> float:
        return fans if BEGIN_S <= at < end_s else 1.0

    label = f"inlet {degrees:.0f} °C warmer{'' if mild else ', all fans stop'}"
    return Wave("short", label, inlet_c, airflow, end_s, end_s + AFTER_S)


async def ask_in_time(side: Played) -> Answer:
    answer = await ask(side.port, _REQUEST, DEADLINE_S)
    side.answered += answer.status == 200
    return answer


async def play(wave: Wave, sides: Mapping[str, Played], progress: Progress) -> dict[str, Run]:
    from_s = BEGIN_S - CALM_S
    runs = {}
    async with asyncio.TaskGroup() as group:
        for name, side in sides.items():
            bar = progress.add_task(name, total=wave.until_s - from_s, second="")
            show = partial(_show, progress, bar, from_s)
            runs[name] = group.create_task(side.play(from_s, show))
            load = poisson(
                partial(ask_in_time, side),
                per_s=OFFERED_PER_S,
                seconds=wave.until_s - from_s,
                rng=random.Random(_SEED),
            )
            group.create_task(load)
    return {name: run.result() for name, run in runs.items()}


def _show(progress: Progress, bar: TaskID, from_s: float, second: Second) -> None:
    progress.update(bar, completed=second.at - from_s, second=_in_words(second))


def _in_words(second: Second) -> str:
    return (
        f"{second.temperature_c:4.1f} °C, clock {second.clock:4.0%}, limit {second.factor:4.0%}, "
        f"{second.state}, {second.answered}/s"
    )


def report(name: str, run: Run) -> None:
    print(
        f"{name}: {run.goodput:.1f} answers in time a second, least limit {run.least_factor:.0%}, "
        f"{run.shutdowns} shutdowns of the card"
    )
    for change in run.transitions:
        at = f"{change.at - BEGIN_S:+.0f} s"
        print(f"  {at:>7} {change.before} -> {change.after}, {change.reason}: {change.sentence}")


def figure(guarded: Run, unprotected: Run) -> dict[str, float]:
    return {
        "goodput_ratio": round(guarded.goodput / unprotected.goodput, 3),
        "opens": guarded.opens,
        "transitions_a_minute": guarded.transitions_a_minute,
        "recovery_s": round(guarded.recovery_s, 1),
        "above_slowdown_s": round(guarded.above_slowdown_s, 1),
        "unprotected_above_slowdown_s": round(unprotected.above_slowdown_s, 1),
        "hottest_c": round(guarded.hottest_c, 1),
        "unprotected_hottest_c": round(unprotected.hottest_c, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mild", action="store_true", help="warm air, and the fans turn")
    wave = short_wave(mild=parser.parse_args().mild)
    columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[second]}"))
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        library = compiled(folder)
        sides = {}
        for name in SIDES:
            card = warm(wave, BEGIN_S - CALM_S, _SEED)
            side = played(
                folder / name, library, wave, card,
                guarded=name == "guarded", deadline_s=DEADLINE_S,
            )  # fmt: skip
            sides[name] = stack.enter_context(side)
        progress = stack.enter_context(
            Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
        )
        runs = uvloop.run(play(wave, sides, progress))
    for name, run in runs.items():
        report(name, run)
    print(json.dumps(figure(**runs)))


if __name__ == "__main__":
    main()
