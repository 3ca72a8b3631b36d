"""A server of the same make as ours that does nothing: what the framework itself costs.

``POST /empty`` reads the body and answers with nothing, the WebSocket ``/echo`` says what it hears. With the
repairs that every server of this make needs (`app.disconnect`, `app.connections`). ``--bare``: without them.
"""

from __future__ import annotations

import sys
from functools import partial

import hypercorn.trio
import trio
from hypercorn.config import Config
from quart import Response, request, websocket
from quart_trio import QuartTrio

from app.connections import bounded_connections
from app.disconnect import FinishBeforeDisconnect

__all__: list[str] = []


def _app(bare: bool) -> QuartTrio:
    app = QuartTrio(__name__, static_folder=None)
    app.config["RESPONSE_TIMEOUT"] = app.config["BODY_TIMEOUT"] = None

    @app.post("/empty")
    async def empty() -> Response:
        await request.get_data()
        return Response(b"", content_type="application/json")

    @app.get("/health")
    async def health() -> Response:
        return Response(b"", content_type="text/plain")

    @app.websocket("/echo")
    async def echo() -> None:
        while True:
            await websocket.send(await websocket.receive())

    if not bare:
        app.asgi_app = FinishBeforeDisconnect(app.asgi_app)  # type: ignore[method-assign]
    return app


async def _serve(bare: bool) -> None:
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.include_server_header = False
    config.graceful_timeout = 1
    # As our server: hypercorn ends a connection after a thousand requests, a stream has more chunks.
    config.keep_alive_max_requests = 1 << 31
    async with trio.open_nursery() as nursery:
        start = partial(hypercorn.trio.serve, _app(bare), config, shutdown_trigger=trio.sleep_forever)
        (url,) = await nursery.start(start)
        print(f"Ready: {url}", flush=True)


async def _main(bare: bool) -> None:
    if bare:
        await _serve(bare)
    else:
        async with bounded_connections(30):
            await _serve(bare)


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    trio.run(_main, "--bare" in sys.argv)
