"""What is answered before Quart: health checks, requests for which there is no room, and JSON for JSON.

A request costs Quart as much of the event loop as rendering a chat, and several of its turns. Under overload
most requests are refused, and someone asks every few milliseconds whether the server is still there.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from hypercorn.typing import (
    ASGIFramework,
    ASGIReceiveCallable,
    ASGISendCallable,
    Scope,
)

from trio_render import Overloaded

from .answering import KINDS_OF, Work, answer_json
from .body import Received
from .errors import Answer, answer_to, error_body
from .sending import give
from .services import Services

__all__ = ["ALIVE", "EarlyAnswers"]

ALIVE = Answer(200, {"content-type": "text/plain"}, b"")
_ALLOW = {"allow": "OPTIONS, POST"}
_OPTIONS = Answer(200, {"content-type": "text/plain", **_ALLOW}, b"")
_NOT_ALLOWED = Answer(
    HTTPStatus.METHOD_NOT_ALLOWED,
    {"content-type": "application/json", **_ALLOW},
    error_body(HTTPStatus.METHOD_NOT_ALLOWED, "Method Not Allowed", "Method Not Allowed."),
)
_ASKED_WITH = {"/health": ("GET",), "/ping": ("GET", "POST")}


class EarlyAnswers:
    """ASGI middleware: answers by itself what it can, and hands on the rest.

    Args:
        works: by path, what makes a JSON answer of a JSON body.
    """

    def __init__(self, app: ASGIFramework, services: Services, works: Mapping[str, Work]) -> None:
        self._app = app
        self._services = services
        self._works = works

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope["root_path"])
        answer = self._answer(scope["method"], path)
        work = self._works.get(path)
        if answer is not None:
            self._services.metrics.count_request(path, answer.status)
            await give(answer, Received(scope, receive), send)
        elif work is not None:
            await answer_json(self._services, path, work, Received(scope, receive), send)
        else:
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
        elif path in self._works:
            return _OPTIONS if method == "OPTIONS" else _NOT_ALLOWED
        return None
