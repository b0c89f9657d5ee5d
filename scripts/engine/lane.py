#!/usr/bin/env python3
"""The real-engine lane: install, start and stop vLLM's CPU builds for the tests.

examples:
  lane.py install --version 0.28.0            once; about 760 MB to download, 2 GB on disk
  lane.py up                                  0.28.0 with the plugin on port 8000, in background
  lane.py up --version 0.32.0 --no-plugin --port 8001
  lane.py up --foreground --max-num-seqs 1    logs to the terminal, Ctrl-C ends it
  lane.py status                              every engine started from this cache
  lane.py down                                ends the one on port 8000, EngineCore included
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # run as a file, from anywhere

from scripts.engine import install, process, serve  # noqa: E402

PLUGIN = ROOT / "service" / "hunyuan_ocr" / "engines" / "vllm_plugin.py"


def _state(cache: Path, port: int) -> Path:
    return cache / "run" / f"port-{port}.json"


def _plugin_folder(cache: Path, port: int) -> Path:
    """The plugin laid out for PYTHONPATH."""
    folder = cache / "run" / f"plugin-{port}"
    subprocess.run([sys.executable, str(PLUGIN), "install", str(folder)], check=True)
    return folder


def _python_path(options: argparse.Namespace) -> tuple[Path, ...]:
    plugin = (_plugin_folder(options.cache, options.port),) if options.plugin else ()
    return plugin + ((options.extra_plugin.resolve(),) if options.extra_plugin else ())


def _engine(options: argparse.Namespace) -> serve.Engine:
    model = options.model or serve.MODELS / serve.DEFAULT_MODEL[options.version]
    return serve.Engine(
        version=options.version,
        environment=install.install(options.cache, options.version),
        model=model.resolve(),
        port=options.port,
        max_num_seqs=options.max_num_seqs,
        python_path=_python_path(options),
        otlp_endpoint=options.otlp_endpoint,
    )


def command_install(options: argparse.Namespace) -> int:
    began = time.monotonic()
    target = install.install(options.cache, options.version)
    print(f"vLLM {options.version} is in {target} ({time.monotonic() - began:.0f} s)")
    return 0


def command_up(options: argparse.Namespace) -> int:
    state = _state(options.cache, options.port)
    state.parent.mkdir(parents=True, exist_ok=True)
    running = process.load(state)
    if running is not None and process.members(running):
        print(f"port {options.port} already has vLLM {running.version}, pid {running.pid}")
        return 1
    if process.healthy(options.port):
        print(f"port {options.port} is taken by a server that this lane did not start")
        return 1
    engine = _engine(options)
    if options.foreground:
        os.chdir("/")  # a folder named vllm/ must not shadow the package
        os.execve(engine.command()[0], engine.command(), engine.variables())
    log = state.with_suffix(".log")
    child = process.start(engine.command(), engine.variables(), log)
    running = process.Running(
        pid=child.pid, started_ticks=process.started_ticks(child), port=options.port,
        version=options.version, plugin=options.plugin, log=str(log),
    )  # fmt: skip
    running.save(state)
    return _await_health(running, options.timeout_s)


def _await_health(engine: process.Running, timeout_s: float) -> int:
    began = time.monotonic()
    label = f"vLLM {engine.version}, {'with' if engine.plugin else 'without'} plugin"
    while (waited_s := time.monotonic() - began) < timeout_s:
        if process.healthy(engine.port):
            print(f"{label}: healthy on port {engine.port} after {waited_s:.0f} s", flush=True)
            return 0
        if not process.members(engine):
            break
        if int(waited_s) % 10 == 0:
            print(f"{label}: starting, {waited_s:.0f} s", flush=True)
        time.sleep(1.0)
    process.stop(engine)
    tail = Path(engine.log).read_text(errors="replace").splitlines()[-30:]
    print(f"{label}: did not become healthy; the end of {engine.log}:", *tail, sep="\n")
    return 1


def command_down(options: argparse.Namespace) -> int:
    state = _state(options.cache, options.port)
    running = process.load(state)
    if running is None:
        print(f"nothing was started on port {options.port}")
        return 0
    process.stop(running)
    if left := process.members(running):
        print(f"still alive: {left}")
        return 1
    state.unlink()
    print(f"port {options.port}: vLLM {running.version} ended")
    return 0


def command_status(options: argparse.Namespace) -> int:
    for version in install.VERSIONS:
        installed = install.is_installed(options.cache, version)
        print(f"vLLM {version}: {'installed' if installed else 'not installed'}")
    for state in sorted((options.cache / "run").glob("port-*.json")):
        running = process.load(state)
        if running is None:
            continue
        pids = process.members(running)
        condition = "dead" if not pids else "healthy" if process.healthy(running.port) else "up"
        plugin = "plugin" if running.plugin else "as shipped"
        print(f"port {running.port}: {condition}, vLLM {running.version}, {plugin}, "
              f"pids {pids}, log {running.log}")  # fmt: skip
    return 0


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="lane.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--cache", type=Path, default=install.default_cache(),
                        help="folder of environments and state (default: %(default)s)")  # fmt: skip
    commands = root.add_subparsers(dest="command", required=True)

    def command(name: str, purpose: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=purpose, description=purpose, parents=[shared])

    install_ = command("install", "install one version; idempotent")
    up = command("up", "start one engine and wait until it is healthy")
    down = command("down", "end the engine on a port")
    command("status", "what is installed and what runs")
    for sub in (install_, up):
        sub.add_argument("--version", choices=install.VERSIONS, default="0.28.0")
    for sub in (up, down):
        sub.add_argument("--port", type=int, default=8000)
    up.add_argument("--plugin", action=argparse.BooleanOptionalAction, default=True,
                    help="load the project's vLLM plugin (default: yes)")  # fmt: skip
    up.add_argument("--extra-plugin", type=Path, metavar="DIR",
                    help="another folder for PYTHONPATH: a fault to be tested")  # fmt: skip
    up.add_argument("--model", type=Path, help="model folder (default: the version's own fixture)")
    up.add_argument("--max-num-seqs", type=int, default=16, help="default: %(default)s")
    up.add_argument("--timeout-s", type=float, default=300.0, help="default: %(default)s")
    up.add_argument("--otlp-endpoint", metavar="URL", help="where spans go, ending in /v1/traces")
    up.add_argument("--foreground", action="store_true", help="replace this process by the engine")
    return root


def main() -> int:
    options = parser().parse_args()
    actions = {"install": command_install, "up": command_up, "down": command_down,
               "status": command_status}  # fmt: skip
    try:
        return actions[options.command](options)
    except (install.InstallError, subprocess.CalledProcessError) as error:
        print(f"lane.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
