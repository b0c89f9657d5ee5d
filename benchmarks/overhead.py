"""What standing in front of the engine costs: latency added, CPU a request, most requests a second.

    python -m benchmarks.overhead [--rounds N] [--only NAME,…] [--setup]

`/v1/chat/completions` with a 1024x768 JPEG, 16 in flight, against a stand-in engine that answers
in 200 ms (for the p50) and at once (for CPU and throughput). Every round measures every system,
in another order each time; a system's added p50 is that round's p50 less that of going direct.
Load and stand-in share one core, the systems another. Last line: one JSON object, the medians
over the rounds; `interval` holds their 95 % bootstrap intervals.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import uvloop
from PIL import Image, ImageChops, ImageFilter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks.load import LoadError, Window, closed_loop, post
from benchmarks.peers.running import SYSTEMS, Place, System, on_core, started
from benchmarks.peers.setup import install_litellm, install_nginx
from benchmarks.processes import tree_cpu_s
from benchmarks.standin import MODEL
from tests.api.server import free_ports
from tests.pictures import picture

ROUNDS = 12
IN_FLIGHT = 16
LATENCY_MS = 200
LATENCY_WARM_UP_S, LATENCY_S = 0.5, 2.0
SATURATED_WARM_UP_S, SATURATED_S = 0.4, 1.6
MEASURES = ("p50_ms", "cpu_ms", "saturation_rps")
_RESAMPLES = 4000
_TABLE_WIDTH = 100
_PEERS = tuple(name for name in SYSTEMS if name not in ("direct", "ours"))


@dataclass(slots=True)
class Samples:
    """One number a round for each measure."""

    p50_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    saturation_rps: list[float] = field(default_factory=list)

    def of(self, measure: str) -> list[float]:
        values: list[float] = getattr(self, measure)
        return values


Results = Mapping[str, Samples]


def page() -> bytes:
    """A JPEG as a phone makes one of a page: text, paper grain, uneven light."""
    size = (1024, 768)
    image, _ = picture([f"{n}. Total amount: {n * 1284.5:,.2f}" for n in range(1, 13)], size)
    grain = Image.frombytes("L", size, random.Random(0).randbytes(size[0] * size[1]))
    grain = grain.filter(ImageFilter.GaussianBlur(0.8)).convert("RGB")
    shaded = ImageChops.multiply(image, Image.linear_gradient("L").resize(size).convert("RGB"))
    lit = Image.blend(image, shaded, 0.3)
    out = io.BytesIO()
    Image.blend(lit, grain, 0.3).save(out, "JPEG", quality=85)
    return out.getvalue()


def chat_body() -> dict[str, object]:
    """What a client sends: one page and an instruction."""
    url = f"data:image/jpeg;base64,{base64.b64encode(page()).decode()}"
    content = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "Extract the text in the image."},
    ]
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": 1024,
    }


def chat_request() -> bytes:
    return post("/v1/chat/completions", json.dumps(chat_body()).encode())


@contextmanager
def stand_in(folder: Path) -> Iterator[int]:
    """A stand-in engine that answers at once; yields its port. Raises OSError."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "benchmarks.standin", "--port", str(port)]
    with started([*command, "--latency-ms", "0"], {}, port, folder / "stand-in.log"):
        yield port


def set_latency(port: int, milliseconds: int) -> None:
    url = f"http://127.0.0.1:{port}/latency-ms/{milliseconds}"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=5).close()


def answer_one(system: System) -> None:
    """The first answer takes some systems seconds. Raises OSError where it is none."""
    url = f"http://127.0.0.1:{system.port}/v1/chat/completions"
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(chat_body()).encode(), headers)
    urllib.request.urlopen(request, timeout=60).close()


def start(stack: ExitStack, names: Iterable[str], place: Place) -> dict[str, System]:
    """Start what can be; what cannot is named on standard error and left out."""
    systems = {}
    for name in names:
        print(f"starting {name}", file=sys.stderr, flush=True)
        try:
            systems[name] = stack.enter_context(SYSTEMS[name](place))
            answer_one(systems[name])
        except (OSError, subprocess.CalledProcessError) as error:
            systems.pop(name, None)
            if name not in _PEERS:
                raise
            print(f"{name} is left out: {error}", file=sys.stderr)
    return systems


def measure(
    systems: Mapping[str, System], engine_port: int, rounds: int, progress: Progress
) -> Results:
    """All systems in turn, `rounds` times; the order moves on by one each time."""
    results = {name: Samples() for name in systems}
    request = chat_request()
    bar = progress.add_task("measuring", total=rounds * 2 * len(systems))
    for number in range(rounds):
        turn = number % len(systems)
        order = [*systems][turn:] + [*systems][:turn]
        set_latency(engine_port, LATENCY_MS)
        p50_ms = {}
        for name in order:
            p50_ms[name] = added_latency(systems[name], request, number)
            progress.advance(bar)
        for name, value in p50_ms.items():
            results[name].p50_ms.append(value - p50_ms["direct"])
        set_latency(engine_port, 0)
        for name in order:
            cpu_ms, per_second = saturation(systems[name], request)
            results[name].cpu_ms.append(cpu_ms)
            results[name].saturation_rps.append(per_second)
            progress.advance(bar)
    return results


def added_latency(system: System, request: bytes, seed: int) -> float:
    """The p50 of a request in ms."""
    return watch(
        system,
        request,
        warm_up_s=LATENCY_WARM_UP_S,
        measure_s=LATENCY_S,
        spread_s=LATENCY_MS / 1e3,
        seed=seed,
    ).p50_ms


def saturation(system: System, request: bytes) -> tuple[float, float]:
    """CPU milliseconds a request, and requests a second."""
    window = watch(system, request, warm_up_s=SATURATED_WARM_UP_S, measure_s=SATURATED_S)
    return window.cpu_ms, window.per_second


def watch(system: System, request: bytes, **times: Any) -> Window:
    """A window of load on a system; one that fails is said so and measured again, once.

    Raises LoadError.
    """
    cpu_s = partial(tree_cpu_s, system.pid)

    def attempt() -> Window:
        return uvloop.run(closed_loop(system.port, request, cpu_s, in_flight=IN_FLIGHT, **times))

    try:
        return attempt()
    except LoadError as error:
        print(f"{system.name} is measured again: {error}", file=sys.stderr)
        return attempt()


def interval(values: list[float]) -> tuple[float, float]:
    """95 % bootstrap interval of the median."""
    rng = random.Random(0)
    medians = sorted(median(rng.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    return medians[int(0.025 * _RESAMPLES)], medians[int(0.975 * _RESAMPLES)]


def table(results: Results) -> Table:
    shown = Table("system", "added p50 ms", "CPU ms a request", "requests/s at saturation")
    for name in SYSTEMS:
        if name in results:
            shown.add_row(name, *(_cell(results[name].of(measure)) for measure in MEASURES))
        else:
            shown.add_row(name, *["not measured"] * len(MEASURES))
    return shown


def _cell(values: list[float]) -> str:
    low, high = interval(values)
    return f"{median(values):.2f} [{low:.2f}, {high:.2f}]"


def summary(results: Results) -> dict[str, object]:
    """The figure; a peer that could not be measured is null."""

    def medians(name: str) -> dict[str, float]:
        return {key: round(median(results[name].of(key)), 3) for key in MEASURES}

    peers = {name: medians(name) if name in results else None for name in _PEERS}
    intervals = {
        name: {key: [round(end, 3) for end in interval(samples.of(key))] for key in MEASURES}
        for name, samples in results.items()
    }
    return {**medians("ours"), "peers": peers, "interval": intervals}


def cores() -> tuple[int | None, int | None]:
    """For load and stand-in, and for the systems; none of one's own where there is but one."""
    available = sorted(os.sched_getaffinity(0))
    return (available[0], available[1]) if len(available) > 1 else (None, None)


def setup() -> None:
    """Install the peers, so that measuring need not."""
    for install in (install_nginx, install_litellm):
        try:
            print(f"there: {install()}", file=sys.stderr)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"not installed: {error}", file=sys.stderr)


def run(names: list[str], rounds: int) -> Results:
    load_core, system_core = cores()
    print(f"load and stand-in on core {load_core}, systems on {system_core}", file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with on_core(load_core):
            engine_port = stack.enter_context(stand_in(folder))
        systems = start(stack, names, Place(folder, system_core, engine_port))
        stack.enter_context(on_core(load_core))
        progress = stack.enter_context(
            Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
        )
        return measure(systems, engine_port, rounds, progress)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", help="names of peers, separated by commas; `none` for none")
    parser.add_argument("--setup", action="store_true", help="install the peers and stop")
    options = parser.parse_args()
    setup()
    if options.setup:
        return
    peers = _PEERS if options.only is None else options.only.split(",")
    names = ["direct", "ours", *(name for name in _PEERS if name in peers)]
    results = run(names, options.rounds)
    Console(width=_TABLE_WIDTH).print(table(results))
    print(json.dumps(summary(results)))


if __name__ == "__main__":
    main()
