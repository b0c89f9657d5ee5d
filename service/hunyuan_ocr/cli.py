"""The command line: serve, read, check, new-key, and what orchestrators run.

Parts are imported by the commands that need them: kubelet waits for `drain`.
"""

from __future__ import annotations

import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from hunyuan_ocr.tasks.catalogue import Task

if TYPE_CHECKING:
    from hunyuan_ocr.app import Service
    from hunyuan_ocr.settings import Settings

app = typer.Typer(
    help="OCR over HTTP: HunyuanOCR on vLLM, or a CPU engine, behind one service.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


def main() -> None:
    # The kernel drops what a container's first process does not handle, and serving takes its
    # time to begin: a pod that is deleted meanwhile would stay for its whole grace.
    signal.signal(signal.SIGTERM, lambda signum, _: sys.exit(128 + signum))
    app()


def _fail(what: str, why: object, code: int = 1) -> NoReturn:
    typer.secho(f"{what}: ", fg=typer.colors.RED, err=True, nl=False)
    typer.echo(str(why), err=True)
    raise typer.Exit(code)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as version_of

        typer.echo(version_of("hunyuan-ocr"))
        raise typer.Exit


def _settings() -> Settings:
    from hunyuan_ocr.settings import SettingsError, load_settings

    try:
        return load_settings()
    except SettingsError as error:
        _fail("settings", error, 2)


def _built(settings: Settings) -> Service:
    from hunyuan_ocr.api.keys import KeyFileError
    from hunyuan_ocr.app import build

    try:
        return build(settings)
    except KeyFileError as error:
        _fail("settings", error, 2)


@app.command()
def serve() -> None:
    """Serve on the API port until SIGTERM; settings come from HYOCR_… variables.

    Example: `HYOCR_PORT=8080 hunyuan-ocr serve`
    """
    import uvloop

    from hunyuan_ocr.server import SocketUnusable
    from hunyuan_ocr.server import serve as serve_service
    from hunyuan_ocr.telemetry.logs import configure_logging

    settings = _settings()
    configure_logging(settings.log_level)
    try:
        uvloop.run(serve_service(_built(settings)))
    except SocketUnusable as error:
        _fail("settings", error, 2)


@app.command()
def drain(
    socket: Annotated[
        Path | None,
        typer.Option(envvar="HYOCR_CONTROL_SOCKET", help="Control socket of the service."),
    ] = None,
    timeout_s: Annotated[
        float | None, typer.Option(help="Longest wait; default: as long as it takes.")
    ] = None,
) -> None:
    """Drain the running service: unready at once, new pages refused soon, those in flight finished.

    Ends when nothing is in flight any more; the service then still answers, until it is ended.

    Example: `hunyuan-ocr drain --socket /run/hunyuan-ocr/control`
    """
    from hunyuan_ocr import control

    if socket is None:
        _fail("drain", "set HYOCR_CONTROL_SOCKET as `serve` has it, or give --socket PATH", 2)
    try:
        control.drain(socket, timeout_s, typer.echo)
    except control.ControlError as error:
        _fail("drain", error)


class BreakerAction(StrEnum):
    STATUS = "status"
    OPEN = "open"
    CLOSE = "close"


@app.command()
def breaker(
    action: Annotated[BreakerAction, typer.Argument()] = BreakerAction.STATUS,
    socket: Annotated[
        Path | None,
        typer.Option(envvar="HYOCR_CONTROL_SOCKET", help="Control socket of the service."),
    ] = None,
    why: Annotated[str, typer.Option(help="Reason for opening, for logs and status.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show the running service's circuit breaker, open it by hand, or end that and any cool-down.

    What was opened by hand stays open until `close`. Conditions that last, such as heat, hold it
    open after `close` too.

    Examples: `hunyuan-ocr breaker`, `hunyuan-ocr breaker open --why "fan is being replaced"`
    """
    import json

    from hunyuan_ocr import control

    if socket is None:
        _fail("breaker", "set HYOCR_CONTROL_SOCKET as `serve` has it, or give --socket PATH", 2)
    try:
        state = control.breaker(socket, action.value, why)
    except control.ControlError as error:
        _fail("breaker", error)
    typer.echo(json.dumps(state) if as_json else control.breaker_in_words(state))


@app.command("engine-code")
def engine_code_command(
    directory: Annotated[
        Path,
        typer.Argument(
            exists=True, file_okay=False, writable=True, help="Folder that vLLM's container reads."
        ),
    ],
) -> None:
    """Write what vLLM's own container runs into a folder: the plugin, and launcher.py.

    Example: `hunyuan-ocr engine-code /code`, then
    `python3 /code/launcher.py serve -- vllm serve …`
    """
    from hunyuan_ocr.engines import engine_code

    try:
        engine_code.install(directory)
    except OSError as error:
        _fail("engine-code", error)


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def probe(context: typer.Context) -> None:
    """Say what the GPU's sensors say, as vLLM's container reports it to this service.

    Example: `hunyuan-ocr probe --once`; `hunyuan-ocr probe --help` has the rest.
    """
    from hunyuan_ocr.gpu import probe

    raise typer.Exit(probe.main(context.args, "hunyuan-ocr probe"))


@app.command()
def read(
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, readable=True)],
    task: Annotated[Task, typer.Option(help="What to read out of the pages.")] = Task.TEXT,
    output_format: Annotated[
        OutputFormat, typer.Option("--format", help="Text, or JSON with the place of each line.")
    ] = OutputFormat.TEXT,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for one answer file per input; default: standard output."),
    ] = None,
    server: Annotated[
        str | None, typer.Option(help="Base URL of a running service; default: read here.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="HYOCR_API_KEY", help="Key for the server.")
    ] = None,
) -> None:
    """Read files and print their text.

    Examples: `hunyuan-ocr read scan.png`,
    `hunyuan-ocr read *.pdf --format json --output answers --server http://localhost:7860`
    """
    import uvloop

    from hunyuan_ocr import client
    from hunyuan_ocr.errors import OcrError

    if server and not server.startswith(("http://", "https://")):
        raise typer.BadParameter("the base URL of a server starts with http:// or https://")
    source: client.Reader = (
        client.ServerReader(server, api_key) if server else client.LocalReader(_built(_settings()))
    )
    try:
        failed = uvloop.run(client.read_files(source, files, task, output_format.value, output))
    except (client.ReadFailed, OcrError) as error:
        _fail("read", error)
    raise typer.Exit(1 if failed else 0)


@app.command()
def check(
    isolation: Annotated[
        bool, typer.Option("--isolation", help="Run the isolation self-test and print its report.")
    ] = False,
) -> None:
    """Check that the settings are valid and the engine agrees with them; says what to fix.

    Example: `HYOCR_ENGINE=vllm hunyuan-ocr check --isolation`
    """
    import json
    from dataclasses import asdict

    import uvloop
    from aiohttp import ClientError

    from hunyuan_ocr.client import engine_problem
    from hunyuan_ocr.engines.vllm import VllmEngine
    from hunyuan_ocr.errors import OcrError

    settings = _settings()
    service = _built(settings)

    async def start_and_stop() -> str | None:
        async with service.running():
            problem = await engine_problem(service.usual.engine)
            if isolation and problem is None and isinstance(service.usual.engine, VllmEngine):
                report = await service.usual.engine.check_isolation()
                typer.echo(json.dumps(asdict(report)))
                if report.verdict != "isolated":
                    problem = f"isolation self-test {report.verdict}: {report.detail}"
            return problem

    try:
        problem = uvloop.run(start_and_stop())
    except (OcrError, ClientError, TimeoutError) as error:
        problem = error.detail if isinstance(error, OcrError) else str(error)
    if problem:
        _fail(f"engine {settings.engine}", problem)
    typer.echo(f"settings are valid; the {settings.engine} engine is ready")


@app.command("new-key")
def new_key_command(
    key_id: Annotated[str, typer.Argument(help="Name of the caller, shown in logs.")],
) -> None:
    """Make an API key: the caller's secret on standard output, its line for the key file below.

    Example: `hunyuan-ocr new-key billing`
    """
    from hunyuan_ocr.api.keys import new_key

    try:
        key, entry = new_key(key_id)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    typer.echo(key)
    typer.echo(entry)
