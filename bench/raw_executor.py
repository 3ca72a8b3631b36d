"""The base line: the same work behind asyncio and ``loop.run_in_executor``, as the reference offloads it.

A bare ASGI app on hypercorn's asyncio worker, the loop's default executor, the default switch interval.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from typing import Any

from hypercorn.asyncio import serve
from hypercorn.config import Config

from trio_render import Workspace, open_workspace
from trio_render.derender import wire

__all__: list[str] = []


def _never() -> None:
    """Nothing is ever cancelled here: that is the point."""


class _App:
    """``/health`` and the chat derender endpoint."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        answer = b""
        if scope["path"] != "/health":
            body = []
            while True:
                event = await receive()
                body.append(event.get("body", b""))
                if not event.get("more_body"):
                    break
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(None, wire.chat_json, self._workspace, _never, body)
        headers = [(b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


async def _main(model: str) -> None:
    workspace = open_workspace(model)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(128)
    config = Config()
    config.bind = [f"fd://{sock.fileno()}"]
    config.loglevel = "WARNING"
    # hypercorn ends a connection after a thousand requests otherwise, and its client fails.
    config.keep_alive_max_requests = 1 << 31
    print(f"Ready: http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
    await serve(_App(workspace), config, shutdown_trigger=stop.wait)  # type: ignore[arg-type]


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
