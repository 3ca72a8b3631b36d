"""A server of the same make as ours that does nothing: what the framework itself costs.

``POST /empty`` reads the body and answers with nothing, the WebSocket ``/echo`` says what it hears. With the
repairs that every server of this make needs (here, and `app.connections`). ``--bare``: without them.
"""

from __future__ import annotations

import sys
from functools import partial

import hypercorn.trio
import trio
from hypercorn.config import Config
from hypercorn.typing import (
    ASGIFramework,
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    ASGISendEvent,
    Scope,
)
from quart import Response, request, websocket
from quart_trio import QuartTrio

from app.connections import bounded_connections

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
        app.asgi_app = _FinishBeforeDisconnect(app.asgi_app)  # type: ignore[method-assign]
    return app


class _FinishBeforeDisconnect:
    """Lets hypercorn finish a response, which Quart-Trio cancels: the least that a server has to do."""

    def __init__(self, app: ASGIFramework) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        finishing = False

        async def receive_unless_finishing() -> ASGIReceiveEvent:
            event = await receive()
            if finishing and event["type"] == "http.disconnect":
                await trio.sleep_forever()
            return event

        async def send_and_note(event: ASGISendEvent) -> None:
            nonlocal finishing
            if event["type"] == "http.response.body" and not event.get("more_body"):
                finishing = True
            await send(event)

        await self._app(scope, receive_unless_finishing, send_and_note)


async def _serve(bare: bool) -> None:
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.include_server_header = False
    config.graceful_timeout = 1
    config.loglevel = "WARNING"
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
