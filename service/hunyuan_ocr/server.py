"""Runs a service: its listeners on one event loop, until a signal says stop."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from hunyuan_ocr.app import Service
from hunyuan_ocr.protocol import ConnectionLimits, bounded

# Longer than the idle time of common load balancers, so that they and not we close first.
_KEEP_ALIVE_S = 75
_OPERATORS_CONNECTIONS_MAX = 64
# Nothing is in flight any more when listeners close, or all the time for it is over.
_CLOSING_S = 1
_M_MMAP_THRESHOLD = -3  # of <malloc.h>
# More than the pieces that bodies come in, less than bodies that matter.
_OWN_MAPPING_BYTES = 1 << 20


class SocketUnusable(Exception):
    """The control socket cannot be where the settings want it; the message says why."""


class _Listener(uvicorn.Server):
    """A server whose signals are handled for all listeners together."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listener(app: ASGIApp, host: str, port: int, limits: ConnectionLimits) -> _Listener:
    return _Listener(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http=bounded(limits),
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_CLOSING_S,
        )
    )


async def serve(service: Service) -> None:
    """Serve until SIGTERM or SIGINT, which drain: requests in flight get `shutdown_grace_s`.

    Raises SocketUnusable.
    """
    settings = service.settings
    header_bytes = settings.max_header_kilobytes * 1024
    callers = ConnectionLimits(settings.max_connections, header_bytes, settings.header_timeout_s)
    operators = ConnectionLimits(
        _OPERATORS_CONNECTIONS_MAX, header_bytes, settings.header_timeout_s
    )
    api = _listener(service.api, settings.host, settings.port, callers)
    management = _listener(
        service.management, settings.management_host, settings.management_port, operators
    )
    control = _listener(service.control, "", 0, operators)
    service.drainer.clear_markers()
    ending: asyncio.Task[None] | None = None

    def stop() -> None:
        nonlocal ending
        if ending is None:
            ending = group.create_task(_drain_and_end(service, api))

    loop = asyncio.get_running_loop()
    path = settings.control_socket
    with _own_socket(path) if path else nullcontext() as listening:
        async with service.running(), asyncio.TaskGroup() as group:
            _spare_what_stays()
            _map_large_blocks()
            # Not before: a service that is still starting has nothing to lose and may just die.
            for signum in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(signum, stop)
            group.create_task(management.serve())
            if listening:
                group.create_task(control.serve([listening]))
            await api.serve()
            # Probes and metrics stay up until the last page is out.
            management.should_exit = control.should_exit = True


def _spare_what_stays() -> None:
    """Take all that a start leaves behind out of the garbage collector's sight.

    It would look at a hundred thousand objects of modules and schemas again and again, and
    each time the event loop would stand still for a tenth of a second.
    """
    gc.collect()
    gc.freeze()


def _map_large_blocks() -> None:
    """Let bodies be memory of their own, which is given back with them.

    glibc would soon take them from its heap (mallopt(3): the threshold follows what is freed),
    where bodies that grow side by side leave gaps: two thirds more than they hold.
    """
    with suppress(AttributeError):  # other C libraries have no such thing
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _OWN_MAPPING_BYTES)


async def _drain_and_end(service: Service, api: _Listener) -> None:
    service.drainer.begin(propagation_s=0.0)
    await service.drainer.wait(service.settings.shutdown_grace_s)
    api.should_exit = True


@contextmanager
def _own_socket(path: Path) -> Iterator[socket.socket]:
    """A Unix socket for this user alone; one that a dead process left behind is replaced."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        try:
            _remove_stale(path)
            mask = os.umask(0o177)
            try:
                listening.bind(str(path))
            finally:
                os.umask(mask)
        except OSError as error:
            raise SocketUnusable(f"no socket can be made at {path}: {error}") from error
        try:
            yield listening
        finally:
            path.unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    """Raises SocketUnusable where somebody listens, or what is there is no socket."""
    if not path.exists():
        return
    if not path.is_socket():
        raise SocketUnusable(f"{path} is there and no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise SocketUnusable(f"another process listens at {path}")
