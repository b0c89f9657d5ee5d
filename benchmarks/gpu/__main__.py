"""Trials of vLLM on a GPU.

    trial    one engine: start, memory, coded pages, hang, special tokens, death
    speed    pages a second and first token, at several numbers of requests in flight
    shaped   write a model folder with HunyuanOCR 1.0's dimensions and no weights
    sensors  what the GPU's sensors give, raw

Results are JSON files; the engine's log lies beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu import apart, faults, hostile, sensors, shaped, speed
from benchmarks.gpu.http import Client, connect
from benchmarks.gpu.server import Plan, Server, StartError
from tests.engine.vllm_client import connect as self_test_client

LOG_LINES = re.compile(
    r"Model loading took|Available KV cache|GPU KV cache size|Graph capturing|[Cc]apturing .*took|"
    r"torch.compile took|init engine|hunyuan_ocr_plugin|different number of tokens|Using .*backend|"
    r"[Mm]odel [Rr]unner|Maximum concurrency|Encoder cache|CUDA graph memory|"
    r"EngineDeadError|LeakError|IndexError|Error in memory"
)
FIRST_RUNNER = {"VLLM_USE_V2_MODEL_RUNNER": "0"}


class Report:
    """A result that is written after every step: what was measured survives what comes next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.content: dict[str, Any] = {}

    def put(self, name: str, value: object) -> None:
        self.content[name] = value
        self._path.write_text(json.dumps(self.content, indent=1, ensure_ascii=False))
        print(f"{self._path.stem}: {name}", flush=True)


def _plan(options: argparse.Namespace, variables: dict[str, str]) -> Plan:
    given = dict(pair.split("=", 1) for pair in options.env)
    return Plan(
        python=options.python, python_path=options.path, model=options.model.resolve(),
        port=options.port, flags=shlex.split(options.flags), variables=given | variables,
        log=options.out.with_suffix(".log"),
    )  # fmt: skip


def _start(options: argparse.Namespace, report: Report) -> Server:
    """Start with the engine's default model runner; if that fails, once with the first runner."""
    try:
        server = Server.start(_plan(options, {}), options.start_s)
    except StartError as error:
        log = options.out.with_suffix(".log")
        kept = log.rename(log.with_suffix(".failed.log"))
        lines = kept.read_text(errors="replace").splitlines()
        wrong = [line for line in lines if "Error" in line][-12:]
        report.put("first_start_failed", {"why": str(error), "lines": wrong})
        server = Server.start(_plan(options, FIRST_RUNNER), options.start_s)
    plan = server.plan
    report.put("command", ["python3", *plan.command()[1:]])
    report.put("variables", dict(plan.variables))
    report.put("healthy_after_s", server.healthy_after_s)
    return server


def _log_lines(server: Server) -> list[str]:
    lines = server.plan.log.read_text(errors="replace").splitlines()
    return [line[:300] for line in lines if LOG_LINES.search(line)][:80]


def _memory(server: Server) -> dict[str, object]:
    pids = server.pids()
    try:
        return {"pids": pids, "gpu_mib": sensors.used_memory(pids)}
    except Exception as error:  # noqa: BLE001 - no NVML on a CPU
        return {"pids": pids, "error": repr(error)}


async def trial(options: argparse.Namespace) -> int:
    report = Report(options.out)
    server = await asyncio.to_thread(_start, options, report)
    report.put("memory_at_rest", _memory(server))
    report.put("log_at_start", _log_lines(server))
    try:
        async with connect(options.port) as client:
            await _steps(options, report, server, client)
    finally:
        report.put("log_in_the_end", _log_lines(server))
        server.stop()
    return 0


async def _steps(
    options: argparse.Namespace, report: Report, server: Server, client: Client
) -> None:
    steps = options.steps.split(",")
    await apart.measure(client, 4, 2, seed=1)  # warm
    if "apart" in steps:
        result = await apart.measure(client, options.pages, options.in_flight)
        report.put("apart", result.as_dict())
        report.put("memory_after_load", _memory(server))
    if "self-test" in steps:
        report.put("self_test", [await _self_test(options.port) for _ in range(3)])
    if "hang" in steps:
        report.put("hang", await faults.hang(client, server, tokens=options.tokens, stop_s=5.0))
    if "hostile" in steps:
        report.put("hostile", await hostile.measure(client, options.port))
        if server.process.poll() is not None:
            report.put("ended_with", server.process.poll())
            return
    for step, busy in (("kill-busy", 4), ("kill-idle", 0)):
        if step in steps:
            outcome = await faults.kill(
                client, server, busy=busy, tokens=options.tokens, watch_s=10.0
            )
            report.put(step, outcome)


async def _self_test(port: int) -> dict[str, object]:
    """The service's own isolation self-test, as it would run before the pod is ready."""
    async with self_test_client(f"http://127.0.0.1:{port}") as client:
        return dataclasses.asdict(await client.isolation(concurrency=16))


async def measure_speed(options: argparse.Namespace) -> int:
    report = Report(options.out)
    server = await asyncio.to_thread(_start, options, report)
    report.put("memory_at_rest", _memory(server))
    report.put("log_at_start", _log_lines(server))
    images = [speed.jpeg(seed) for seed in range(8)]
    report.put("jpeg_bytes", [len(image) for image in images])
    try:
        async with connect(options.port) as client:
            for in_flight in map(int, options.at.split(",")):
                result = asyncio.create_task(
                    speed.measure(client, in_flight, options.seconds, images)
                )
                await asyncio.sleep(options.seconds / 2)
                if options.sensors and in_flight > 1:
                    report.put(f"sensors_at_{in_flight}", await asyncio.to_thread(_sensed))
                report.put(f"speed_at_{in_flight}", (await result).as_dict())
            report.put("memory_after_load", _memory(server))
    finally:
        report.put("log_in_the_end", _log_lines(server))
        server.stop()
    return 0


def _sensed() -> dict[str, object]:
    try:
        return sensors.read() | {"nvidia_smi": sensors.smi().splitlines()}
    except Exception as error:  # noqa: BLE001 - no NVML on a CPU
        return {"error": repr(error)}


def _engine_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--python", default=sys.executable)
    command.add_argument("--path", type=Path, action="append", default=[], metavar="DIR",
                         help="folder for the engine's PYTHONPATH; repeatable")  # fmt: skip
    command.add_argument("--model", type=Path, required=True)
    command.add_argument("--port", type=int, default=8200)
    command.add_argument("--flags", default="", help="more flags for vLLM, as one string")
    command.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    command.add_argument("--start-s", type=float, default=240.0)
    command.add_argument("--out", type=Path, required=True, help="the result, a .json file")


def main() -> int:
    root = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    commands = root.add_subparsers(required=True)
    one = commands.add_parser("trial")
    _engine_options(one)
    one.add_argument("--pages", type=int, default=500)
    one.add_argument("--in-flight", type=int, default=32)
    one.add_argument("--tokens", type=int, default=4000, help="length of the streams in flight")
    one.add_argument("--steps", default="apart,self-test,hang,hostile,kill-busy")
    one.set_defaults(run=lambda o: asyncio.run(trial(o)))
    fast = commands.add_parser("speed")
    _engine_options(fast)
    fast.add_argument("--at", default="1,16,64", help="requests in flight")
    fast.add_argument("--seconds", type=float, default=30.0, help="measured, each")
    fast.add_argument("--sensors", action="store_true", help="read the sensors half-way")
    fast.set_defaults(run=lambda o: asyncio.run(measure_speed(o)))
    shape = commands.add_parser("shaped")
    shape.add_argument("source", type=Path)
    shape.add_argument("target", type=Path)
    shape.set_defaults(run=lambda o: shaped.write(o.source, o.target))
    sense = commands.add_parser("sensors")
    sense.add_argument("out", type=Path)
    sense.set_defaults(run=lambda o: _write(o.out))
    options = root.parse_args()
    run: Callable[[argparse.Namespace], int | None] = options.run
    return run(options) or 0


def _write(path: Path) -> None:
    path.write_text(json.dumps(_sensed(), indent=1))


if __name__ == "__main__":
    raise SystemExit(main())
