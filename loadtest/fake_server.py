"""A server with a built-in law behind the routes of OCR, for tests of the kit.

    python -m loadtest.fake_server --port 8080 --service-s 0.2 --knee 16

With `--port 0` any free port; it prints the port once it listens.
"""

from __future__ import annotations

import argparse
import asyncio
import math

from aiohttp import web

from loadtest.fake_law import Law, Refused, SharedServer
from loadtest.routes import Route

_TEXT = "Total amount: 1,284.50"
_ANSWERS = {
    Route.OCR: {"text": _TEXT},
    Route.V1_OCR: {"pages": [{"index": 1, "text": _TEXT, "error": None, "degraded": False}]},
    Route.CHAT: {"choices": [{"index": 0, "message": {"role": "assistant", "content": _TEXT}}]},
}
_BODY_BYTES_MAX = 64 << 20


def application(server: SharedServer) -> web.Application:
    """The three routes; a full server answers 429, to be asked again after a second."""

    async def read(request: web.Request) -> web.Response:
        await request.read()
        try:
            await server.work()
        except Refused:
            problem = {"status": 429, "code": "queue_full"}
            return web.json_response(problem, status=429, headers={"Retry-After": "1"})
        return web.json_response(_ANSWERS[Route(request.path)])

    async def health(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application(client_max_size=_BODY_BYTES_MAX)
    app.router.add_get("/health", health)
    for route in Route:
        app.router.add_post(route, read)
    return app


async def serve(port: int, law: Law, seed: int) -> None:
    """Serve on the loopback until cancelled."""
    runner = web.AppRunner(application(SharedServer(law, seed)), handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port, backlog=2048)
        await site.start()
        print(runner.addresses[0][1], flush=True)  # noqa: T201 - for who started it
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8080, help="0: any that is free")
    parser.add_argument("--service-s", type=float, default=0.2, help="a request alone, seconds")
    parser.add_argument("--knee", type=float, default=16.0, help="requests in it; inf: none")
    parser.add_argument("--growth", type=float, default=1.0, help="power before the knee")
    parser.add_argument("--tail", type=float, default=0.0, help="power behind the knee")
    parser.add_argument("--sharpness", type=float, default=math.inf, help="of the corner")
    parser.add_argument("--cv", type=float, default=0.3, help="variation of the service time")
    parser.add_argument("--limit", type=float, default=math.inf, help="more at once are refused")
    parser.add_argument("--seed", type=int, default=0)
    options = vars(parser.parse_args())
    port, seed = options.pop("port"), options.pop("seed")
    asyncio.run(serve(port, Law(**options), seed))


if __name__ == "__main__":
    main()
