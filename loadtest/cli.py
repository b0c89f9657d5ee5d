"""The command line of the load tests: run, sweep, engine-sweep, report."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from loadtest import commands
from loadtest.commands import CannotBegin, Output, Setup
from loadtest.engine_sweep import EnginePlan, run_engines
from loadtest.engines import CommandUnusable, grid
from loadtest.experiment import Conditions
from loadtest.generator import Timing
from loadtest.pages import DEFAULT_MIX, PagesUnusable
from loadtest.results import ResultsUnusable
from loadtest.routes import MODEL, Chat, Route
from loadtest.schedule import Arrivals, Closed, Load, Open, read_trace
from loadtest.search import Range
from loadtest.slo import Slo
from loadtest.sweep import Plan

app = typer.Typer(
    help="Load tests of any deployment: the curve, its knee, and the settings that follow.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


class Over(StrEnum):
    CLOSED = "closed"
    POISSON = "poisson"
    CONSTANT = "constant"
    BURST = "burst"


def _address(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise typer.BadParameter("an address begins with http:// or https://")
    return url


Url = Annotated[
    str, typer.Argument(help="Base URL, for example http://localhost:7860", callback=_address)
]
RouteOption = Annotated[Route, typer.Option(help="What is asked.")]
Key = Annotated[str | None, typer.Option(envvar="HYOCR_API_KEY", help="Key for the server.")]
Pages = Annotated[
    str,
    typer.Option(help="A folder with images, or what to draw: WIDTHxHEIGHT[@LINES][=SHARE],…"),
]
Distinct = Annotated[int, typer.Option(min=1, help="Different pages to draw, sent in turn.")]
Model = Annotated[str, typer.Option(help="Chat route: name of the model.")]
Body = Annotated[
    str, typer.Option(metavar="JSON", help="Chat route: more of the body, as '{\"stream\": true}'.")
]
WarmUp = Annotated[
    float,
    typer.Option(
        min=0, help="Seconds of each step that do not count; more until all callers heard."
    ),
]
Seconds = Annotated[
    float, typer.Option(min=0.1, help="Seconds of each step that count, or two answers' time.")
]
Timeout = Annotated[
    float, typer.Option(min=0.1, help="A caller's patience in seconds, from the intended send.")
]
SloP95 = Annotated[float, typer.Option(min=0.001, help="Promise: 95 % answered within, seconds.")]
SloFailed = Annotated[float, typer.Option(min=0, max=1, help="Promise: share without an answer.")]
Connections = Annotated[int, typer.Option(min=1, help="Most requests in flight in open loop.")]
Metrics = Annotated[
    str | None, typer.Option(help="Sidecar's /metrics, or nvidia-smi: the GPU beside the curve.")
]
About = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="To note in the results: gpu, name…")
]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for a first answer.")]
Folder = Annotated[Path, typer.Option(file_okay=False, help="Folder for the results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print summary.json too, in one line.")]
Profile = Annotated[str, typer.Option(help="The chart's profile that the values are for.")]
Pods = Annotated[int, typer.Option(min=1, help="Pods that shared the load.")]
_RESULTS = Path("loadtest-results")
_PROFILE = "rtx-4090-d"


@app.callback()
def _main() -> None:
    """Keeps Typer from leaving out a lone command's name."""


def main() -> None:
    app()


def _fail(what: str, why: object, code: int = 2) -> NoReturn:
    typer.secho(f"{what}: ", fg=typer.colors.RED, err=True, nl=False)
    typer.echo(str(why), err=True)
    raise typer.Exit(code)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Errors as sentences; what was measured before Ctrl-C has been written."""
    try:
        yield
    except (CannotBegin, PagesUnusable, CommandUnusable, ResultsUnusable, OSError) as error:
        _fail(what, error)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _members(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise typer.BadParameter("a JSON object is needed", param_hint="--body")
    return body


def _named(about: list[str] | None) -> dict[str, str]:
    if wrong := [text for text in about or () if "=" not in text]:
        raise typer.BadParameter(f"{wrong[0]} is no NAME=VALUE", param_hint="--about")
    return dict(text.split("=", 1) for text in about or ())


def _numbers(text: str) -> list[float]:
    """Raises BadParameter for what is no list of numbers above 0."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = [math.nan]
    if not all(0 < number < math.inf for number in found):
        raise typer.BadParameter(f"{text} is no list of numbers above 0, by commas")
    return found


@app.command()
def run(
    url: Url,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Open loop: requests/s.")] = None,
    arrivals: Annotated[Arrivals, typer.Option(help="How they come.")] = Arrivals.POISSON,
    trace: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Replay: seconds, one a line.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Closed loop: callers.")] = None,
    route: RouteOption = Route.OCR,
    pages: Pages = DEFAULT_MIX,
    distinct: Distinct = 200,
    model: Model = MODEL,
    body: Body = "{}",
    warm_up: WarmUp = 5.0,
    seconds: Seconds = 60.0,
    timeout: Timeout = 60.0,
    slo_p95: SloP95 = 5.0,
    slo_failed: SloFailed = 0.01,
    connections: Connections = 1000,
    metrics: Metrics = None,
    about: About = None,
    wait: Wait = 0.0,
    output: Folder = _RESULTS,
    as_json: AsJson = False,
    profile: Profile = _PROFILE,
    pods: Pods = 1,
    api_key: Key = None,
) -> None:
    """Put one load on a deployment, and count honestly what came of it.

    Examples: `hunyuan-ocr-loadtest run http://localhost:7860 --rate 5`,
    `… run http://localhost:8000 --route /v1/chat/completions --concurrency 16`
    """
    if sum(given is not None for given in (rate, trace, concurrency)) != 1:
        raise typer.BadParameter("give one of --rate, --trace and --concurrency")
    load: Load
    if trace is not None:
        try:
            load = read_trace(trace.read_text("utf-8"))
        except ValueError as error:
            _fail("run", f"{trace}: {error}")
    else:
        load = Closed(concurrency) if concurrency else Open(rate or 0.0, arrivals)
    conditions = Conditions(
        Timing(warm_up, seconds, timeout), Slo(slo_p95, slo_failed), connections
    )
    setup = Setup(
        url, route, pages, distinct, Chat(model, _members(body)), conditions, api_key, metrics,
        _named(about), wait,
    )  # fmt: skip
    with _told("run"):
        commands.run(setup, load, Output(output, profile, pods, as_json))


@app.command()
def sweep(
    url: Url,
    over: Annotated[Over, typer.Option(help="Callers in flight, or requests/s.")] = Over.CLOSED,
    first: Annotated[float, typer.Option("--from", min=0.001, help="Lowest load.")] = 1,
    last: Annotated[float, typer.Option("--to", min=0.001, help="Highest load.")] = 128,
    repeats: Annotated[int, typer.Option(min=1, help="Steps at each load.")] = 3,
    open_shares: Annotated[
        str, typer.Option(help="Then open loop at these parts of the capacity; empty: none.")
    ] = "0.5,0.7,0.9,1.1",
    route: RouteOption = Route.OCR,
    pages: Pages = DEFAULT_MIX,
    distinct: Distinct = 200,
    model: Model = MODEL,
    body: Body = "{}",
    warm_up: WarmUp = 5.0,
    seconds: Seconds = 20.0,
    timeout: Timeout = 60.0,
    slo_p95: SloP95 = 5.0,
    slo_failed: SloFailed = 0.01,
    connections: Connections = 1000,
    metrics: Metrics = None,
    about: About = None,
    wait: Wait = 0.0,
    output: Folder = _RESULTS,
    as_json: AsJson = False,
    profile: Profile = _PROFILE,
    pods: Pods = 1,
    api_key: Key = None,
) -> None:
    """Find the knee and the highest load at which the promise holds: about half an hour.

    Loads double until nothing new comes, then go between those where something changed. Without
    repeats and with short steps it is quick and unsure.

    Examples: `hunyuan-ocr-loadtest sweep http://localhost:7860 --slo-p95 4`,
    `… sweep http://localhost:7860 --over poisson --to 40 --metrics http://localhost:9180/metrics`
    """
    if last <= first:
        raise typer.BadParameter("--to must be above --from")
    if over is Over.CLOSED and first < 1:
        raise typer.BadParameter("--from is a number of callers: 1 at the least")
    arrivals = None if over is Over.CLOSED else Arrivals(over.value)
    levels = Range(first, last, whole=arrivals is None)
    plan = Plan(levels, repeats, arrivals, _numbers(open_shares) if open_shares else [])
    conditions = Conditions(
        Timing(warm_up, seconds, timeout), Slo(slo_p95, slo_failed), connections
    )
    setup = Setup(
        url, route, pages, distinct, Chat(model, _members(body)), conditions, api_key, metrics,
        _named(about), wait,
    )  # fmt: skip
    with _told("sweep"):
        commands.sweep_all(setup, plan, Output(output, profile, pods, as_json))


@app.command("engine-sweep")
def engine_sweep(
    command: Annotated[
        str, typer.Option(help="How an engine starts, with $port and what is varied; see below.")
    ],
    max_num_seqs: Annotated[str, typer.Option(help="$max_num_seqs, by commas.")] = "8,16,32,64",
    gpu_memory_utilization: Annotated[
        str, typer.Option(help="$gpu_memory_utilization, by commas.")
    ] = "0.9",
    chunked_prefill: Annotated[
        str, typer.Option(help="$chunked_prefill becomes vLLM's flag for on or off; by commas.")
    ] = "on",
    max_pixels: Annotated[str, typer.Option(help="$max_pixels, by commas.")] = "1048576",
    card_gb: Annotated[
        float | None, typer.Option(min=1, help="Emulate a smaller card of so many GB.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Callers in flight.")] = 64,
    runs: Annotated[int, typer.Option(min=1, help="Starts of each engine.")] = 3,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where engines listen.")] = 8000,
    start_timeout: Annotated[float, typer.Option(help="Seconds for an engine to start.")] = 600.0,
    route: RouteOption = Route.CHAT,
    pages: Pages = DEFAULT_MIX,
    distinct: Distinct = 200,
    model: Model = MODEL,
    body: Body = '{"stream": true, "max_tokens": 512}',
    warm_up: WarmUp = 10.0,
    seconds: Seconds = 30.0,
    timeout: Timeout = 60.0,
    output: Folder = _RESULTS,
) -> None:
    """Start engines with one set of flags after another, load each alike, and print a table.

    Example: `hunyuan-ocr-loadtest engine-sweep --card-gb 24 --max-num-seqs 16,32,64 --command
    'vllm serve tencent/HunyuanOCR --port $port --max-num-seqs $max_num_seqs
    --gpu-memory-utilization $gpu_memory_utilization $chunked_prefill
    --mm-processor-kwargs {\\"max_pixels\\":$max_pixels}'`. Use single quotes, so that your shell
    leaves the dollars alone.

    With `--card-gb` torch gives no process more memory than that, and tells the engine that the
    card is that large: `--gpu-memory-utilization` alone sizes the cache and caps nothing.
    """
    with _told("engine-sweep"):
        cells = grid(
            [int(number) for number in _numbers(max_num_seqs)],
            _numbers(gpu_memory_utilization),
            chunked_prefill.split(","),
            [int(number) for number in _numbers(max_pixels)],
        )
        setup = Setup(
            f"http://127.0.0.1:{port}", route, pages, distinct, Chat(model, _members(body)),
            Conditions(Timing(warm_up, seconds, timeout), Slo(timeout)), metrics="nvidia-smi",
        )  # fmt: skip
        plan = EnginePlan(command, cells, runs, concurrency, port, card_gb, start_timeout)
        run_engines(setup, plan, output)


@app.command()
def report(
    results: Annotated[
        list[Path], typer.Argument(exists=True, help="Folders of results, or their summary.json.")
    ],
    output: Folder = _RESULTS,
    profile: Profile = _PROFILE,
    pods: Pods = 1,
) -> None:
    """Draw results again: of one its files, of several their curves over each other.

    Examples: `hunyuan-ocr-loadtest report loadtest-results`,
    `kubectl logs job/ocr-loadtest | tail -1 > summary.json`, then `… report summary.json`
    """
    with _told("report"):
        summaries = [commands.read_summary(path) for path in results]
        commands.write(summaries, Output(output, profile, pods))
