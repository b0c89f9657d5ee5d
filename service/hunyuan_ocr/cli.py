"""The command line: serve, read, check, new-key."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from aiohttp import ClientError
from rich.console import Console

from hunyuan_ocr import client
from hunyuan_ocr.api.keys import KeyFileError, new_key
from hunyuan_ocr.app import VERSION, Service, build
from hunyuan_ocr.engines.base import Engine
from hunyuan_ocr.engines.vllm import VllmEngine
from hunyuan_ocr.errors import EngineStarting, OcrError
from hunyuan_ocr.server import serve as serve_service
from hunyuan_ocr.settings import Settings, SettingsError, load_settings
from hunyuan_ocr.tasks.catalogue import Task
from hunyuan_ocr.telemetry.logs import configure_logging

app = typer.Typer(
    help="OCR over HTTP: HunyuanOCR on vLLM, or a CPU engine, behind one service.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
_stderr = Console(stderr=True)
# An engine that does not answer at all is told within this; a self-test takes seconds.
_CHECK_TIMEOUT_S = 20.0


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


def main() -> None:
    app()


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(VERSION)
        raise typer.Exit


def _settings() -> Settings:
    try:
        return load_settings()
    except SettingsError as error:
        _stderr.print(f"[red]settings:[/] {error}")
        raise typer.Exit(2) from None


def _built(settings: Settings) -> Service:
    try:
        return build(settings)
    except KeyFileError as error:
        _stderr.print(f"[red]settings:[/] {error}")
        raise typer.Exit(2) from None


@app.command()
def serve() -> None:
    """Serve on the API port until SIGTERM; settings come from HYOCR_… variables.

    Example: `HYOCR_PORT=8080 hunyuan-ocr serve`
    """
    settings = _settings()
    configure_logging(settings.log_level)
    uvloop.run(serve_service(_built(settings)))


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
    if server and not server.startswith(("http://", "https://")):
        raise typer.BadParameter("the base URL of a server starts with http:// or https://")
    source: client.Reader = (
        client.ServerReader(server, api_key) if server else client.LocalReader(_built(_settings()))
    )
    try:
        failed = uvloop.run(client.read_files(source, files, task, output_format.value, output))
    except (client.ReadFailed, OcrError) as error:
        _stderr.print(f"[red]read:[/] {error}", highlight=False)
        failed = len(files)
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
    settings = _settings()

    service = _built(settings)

    async def start_and_stop() -> str | None:
        async with service.running():
            problem = await _engine_problem(service.engine)
            if isolation and problem is None and isinstance(service.engine, VllmEngine):
                report = await service.engine.check_isolation()
                typer.echo(json.dumps(asdict(report)))
                if report.verdict != "isolated":
                    problem = f"isolation self-test {report.verdict}: {report.detail}"
            return problem

    try:
        problem = uvloop.run(start_and_stop())
    except (OcrError, ClientError, TimeoutError) as error:
        problem = error.detail if isinstance(error, OcrError) else str(error)
    if problem:
        _stderr.print(f"[red]engine {settings.engine}:[/] {problem}", highlight=False)
        raise typer.Exit(1)
    typer.echo(f"settings are valid; the {settings.engine} engine is ready")


async def _engine_problem(engine: Engine) -> str | None:
    """Why the engine takes no pages, once it has had time to start; None when it does."""
    deadline = time.monotonic() + _CHECK_TIMEOUT_S
    while True:
        refusal = engine.refusal()
        if not isinstance(refusal, EngineStarting) or time.monotonic() > deadline:
            return refusal.detail if refusal else None
        await asyncio.sleep(0.1)


@app.command("new-key")
def new_key_command(
    key_id: Annotated[str, typer.Argument(help="Name of the caller, shown in logs.")],
) -> None:
    """Make an API key: the caller's secret on standard output, its line for the key file below.

    Example: `hunyuan-ocr new-key billing`
    """
    try:
        key, entry = new_key(key_id)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    typer.echo(key)
    typer.echo(entry)
