"""Runs a service: two listeners on one event loop, until a signal says stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from hunyuan_ocr.app import Service
from hunyuan_ocr.protocol import ConnectionLimits, bounded

# Longer than the idle time of common load balancers, so that they and not we close first.
_KEEP_ALIVE_S = 75
_MANAGEMENT_CONNECTIONS_MAX = 64


class _Listener(uvicorn.Server):
    """A server whose signals are handled for both listeners together."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listener(
    app: ASGIApp, host: str, port: int, grace_s: int, limits: ConnectionLimits
) -> _Listener:
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
            timeout_graceful_shutdown=grace_s,
        )
    )


async def serve(service: Service) -> None:
    """Serve until SIGTERM or SIGINT; pages in flight get `shutdown_grace_s` to finish."""
    settings = service.settings
    header_bytes = settings.max_header_kilobytes * 1024
    api_limits = ConnectionLimits(settings.max_connections, header_bytes, settings.header_timeout_s)
    management_limits = ConnectionLimits(
        _MANAGEMENT_CONNECTIONS_MAX, header_bytes, settings.header_timeout_s
    )
    api = _listener(
        service.api, settings.host, settings.port, settings.shutdown_grace_s, api_limits
    )
    management = _listener(
        service.management, settings.management_host, settings.management_port, 1, management_limits
    )

    def stop() -> None:
        service.draining.set()
        api.should_exit = True

    loop = asyncio.get_running_loop()
    async with service.running(), asyncio.TaskGroup() as group:
        # Not before: a service that is still starting has nothing to lose and may just die.
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, stop)
        group.create_task(management.serve())
        await api.serve()
        # Probes and metrics stay up until the last page is out.
        management.should_exit = True
