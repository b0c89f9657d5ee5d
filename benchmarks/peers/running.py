"""Start what is compared, each on the given core, and stop it."""

from __future__ import annotations

import getpass
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.setup import install_litellm, install_nginx
from benchmarks.standin import MODEL
from tests.api.server import free_ports, running_server

_START_TIMEOUT_S = 120.0
_ROOT = Path(__file__).resolve().parents[2]
_NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr error; {user}
events {{ worker_connections 256; }}
http {{
  access_log off; client_max_body_size 64m; client_body_buffer_size 1m;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream engine {{ server 127.0.0.1:{engine_port}; keepalive 32; keepalive_requests 10000000; }}
  server {{
    listen 127.0.0.1:{port}; keepalive_requests 10000000; tcp_nodelay on;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_request_buffering on; proxy_read_timeout 600s;
    }}
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class System:
    """Something that answers chat requests; `pid` is the root of its processes, 0 for none."""

    name: str
    port: int
    pid: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a system runs: its files, its core (None: any), the engine behind it."""

    folder: Path
    core: int | None
    engine_port: int

    @property
    def engine_url(self) -> str:
        return f"http://127.0.0.1:{self.engine_port}"


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """What is started inside runs on `core` alone."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def direct(place: Place) -> Iterator[System]:
    yield System("direct", place.engine_port, 0)


@contextmanager
def ours(place: Place) -> Iterator[System]:
    settings = {"engine": "vllm", "vllm_url": place.engine_url, "isolation_check": "warn"}
    with ExitStack() as stack:
        with on_core(place.core):
            server = stack.enter_context(running_server(place.folder, **settings))
        yield System("ours", int(server.url.rpartition(":")[2]), server.pid)


def nginx(place: Place) -> AbstractContextManager[System]:
    command = install_nginx()
    (port,) = free_ports(1)
    # Started by root its worker would be somebody who may not write into the folder.
    user = f"user {getpass.getuser()};" if os.geteuid() == 0 else ""
    config = place.folder / "nginx.conf"
    config.write_text(
        _NGINX.format(folder=place.folder, port=port, engine_port=place.engine_port, user=user)
    )
    return _system([command, "-p", place.folder, "-c", config], {}, port, place, "nginx")


def semaphore_gateway(place: Place) -> AbstractContextManager[System]:
    (port,) = free_ports(1)
    app = "benchmarks.peers.semaphore_gateway:app"
    command = [sys.executable, "-m", "uvicorn", app, "--port", str(port), "--no-access-log"]
    return _system(command, {"ENGINE_URL": place.engine_url}, port, place, "semaphore-gateway")


def litellm(place: Place) -> AbstractContextManager[System]:
    command = install_litellm()
    (port,) = free_ports(1)
    engine = {"model": f"openai/{MODEL}", "api_base": f"{place.engine_url}/v1", "api_key": "none"}
    settings = {
        "model_list": [{"model_name": MODEL, "litellm_params": engine}],
        "litellm_settings": {"telemetry": False, "request_timeout": 600},
    }
    config = place.folder / "litellm.yaml"
    config.write_text(json.dumps(settings))  # JSON is YAML
    # Without a key, as the others are: nobody but this measurement reaches it.
    environment = {
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_TELEMETRY": "False",
    }
    arguments = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    arguments += ["--num_workers", "1", "--telemetry", "False"]
    return _system([command, *arguments], environment, port, place, "litellm")


@contextmanager
def _system(
    command: Sequence[str | Path], environment: dict[str, str], port: int, place: Place, name: str
) -> Iterator[System]:
    log = place.folder / f"{name}.log"
    with ExitStack() as stack:
        with on_core(place.core):
            process = stack.enter_context(started(command, environment, port, log))
        yield System(name, port, process.pid)


@contextmanager
def started(
    command: Sequence[str | Path], environment: dict[str, str], port: int, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that listens on `port`, until it is left. Raises OSError where it does not."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=os.environ | environment, cwd=_ROOT, stdout=output, stderr=output
        )
    try:
        _wait_until_listening(process, port, log)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)
        process.kill()
        process.wait()


def _wait_until_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise OSError(f"did not start: {log.read_text('utf-8', 'replace')[-1000:]}")


# The name in the figure, and how it is started; `direct` is what the others are held against.
SYSTEMS: dict[str, Callable[[Place], AbstractContextManager[System]]] = {
    "direct": direct,
    "ours": ours,
    "nginx": nginx,
    "semaphore-gateway": semaphore_gateway,
    "litellm": litellm,
}
