"""What is answered before Quart: health checks, and requests for which there is no room.

A request costs Quart a millisecond of the event loop, and several of its turns. Under overload most requests
are refused, and someone asks every few milliseconds whether the server is still there.
"""

from __future__ import annotations

from typing import Self

import trio
from hypercorn.typing import (
    ASGIFramework,
    ASGIReceiveCallable,
    ASGISendCallable,
    HTTPScope,
    Scope,
)

from trio_render import Overloaded

from .answering import KINDS_OF
from .body import discard
from .errors import Answer, answer_to
from .services import Services

__all__ = ["ALIVE", "EarlyAnswers"]

ALIVE = Answer(200, {"content-type": "text/plain"}, b"")
_LINGER_S = 1.0
"""How long the rest of a body that is not read is waited for before its connection is closed."""
_ASKED_WITH = {"/health": ("GET",), "/ping": ("GET", "POST")}


class EarlyAnswers:
    """ASGI middleware: answers by itself what it can, and hands on the rest."""

    def __init__(self, app: ASGIFramework, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope["root_path"])
            answer = self._answer(scope["method"], path)
            if answer is not None:
                self._services.metrics.count_request(path, answer.status)
                await _give(answer, scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _answer(self, method: str, path: str) -> Answer | None:
        if method in _ASKED_WITH.get(path, ()):
            return ALIVE
        if method == "POST":
            try:
                for kind in KINDS_OF.get(path, ()):
                    self._services.offloader.check_admission(kind)
            except Overloaded as error:
                return answer_to(error)
        return None


class _Body:
    """A request's body, chunk by chunk. ``gone``: the client has hung up in the middle."""

    def __init__(self, receive: ASGIReceiveCallable) -> None:
        self._receive = receive
        self._done = False
        self.gone = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._done:
            raise StopAsyncIteration
        event = await self._receive()
        if event["type"] != "http.request":
            self._done = self.gone = True
            return b""
        self._done = not event["more_body"]
        return event["body"]


async def _give(
    answer: Answer, scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable
) -> None:
    body = _Body(receive)
    if not _has_body(scope) or await discard(body):
        if not body.gone:
            await _send(answer, send)
        return
    async with trio.open_nursery() as nursery:
        # hypercorn finishes no response while more of its request's body waits for us than it may keep.
        drained = trio.Event()
        nursery.start_soon(_drain, body, drained)
        await send(answer.closing().head)
        await send({"type": "http.response.body", "body": answer.body, "more_body": True})
        # Closed while the client still sends, the connection would be reset, and the answer lost.
        with trio.move_on_after(_LINGER_S):
            await drained.wait()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        nursery.cancel_scope.cancel()


def _has_body(scope: HTTPScope) -> bool:
    """Say whether there may be a body. What has none need not be waited for."""
    if not scope["http_version"].startswith("1"):
        return True
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])


async def _drain(body: _Body, drained: trio.Event) -> None:
    async for _ in body:
        pass
    drained.set()


async def _send(answer: Answer, send: ASGISendCallable) -> None:
    await send(answer.head)
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})
