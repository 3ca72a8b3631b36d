"""Error type -> status and body: the one table. Every error body of this server is made here."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Self

import msgspec
from hypercorn.typing import HTTPResponseStartEvent
from quart import Quart, Response
from werkzeug.exceptions import HTTPException

from trio_render import (
    DeadlineExceeded,
    EngineError,
    InvalidRequest,
    MalformedRequest,
    ModelNotFound,
    Overloaded,
    RenderError,
    WorkerDied,
)

__all__ = [
    "Answer",
    "BodyTimeout",
    "BodyTooLarge",
    "UnsupportedContentType",
    "answer_to",
    "answer_to_any",
    "error_body",
    "log",
    "register_error_handlers",
]

log = logging.getLogger("trio_render.app")

_MAX_MESSAGE_CHARS = 600


class BodyTooLarge(RenderError):
    """The request's body is over the limit."""


class BodyTimeout(RenderError):
    """The request's body took too long to arrive."""


class UnsupportedContentType(RenderError):
    """The request's body is declared to be something other than JSON."""


_TABLE: list[tuple[type[RenderError], HTTPStatus, str]] = [
    (MalformedRequest, HTTPStatus.BAD_REQUEST, "Bad Request"),
    (UnsupportedContentType, HTTPStatus.BAD_REQUEST, "Bad Request"),
    (InvalidRequest, HTTPStatus.BAD_REQUEST, "BadRequestError"),
    (ModelNotFound, HTTPStatus.NOT_FOUND, "NotFoundError"),
    (BodyTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Request Entity Too Large"),
    (BodyTimeout, HTTPStatus.REQUEST_TIMEOUT, "Request Timeout"),
    (Overloaded, HTTPStatus.SERVICE_UNAVAILABLE, "overloaded"),
    (WorkerDied, HTTPStatus.SERVICE_UNAVAILABLE, "Service Unavailable"),
    (DeadlineExceeded, HTTPStatus.GATEWAY_TIMEOUT, "Gateway Timeout"),
    (EngineError, HTTPStatus.BAD_GATEWAY, "Bad Gateway"),
]
"""First match wins. The words are the reference's, where it has the error."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A short answer, whoever sends it. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def head(self) -> HTTPResponseStartEvent:
        """What begins it, its length included, for who sends it without Quart."""
        headers = {**self.headers, "content-length": str(len(self.body))}
        return {
            "type": "http.response.start",
            "status": self.status,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }

    def closing(self) -> Self:
        """Return the same answer as the last one on its connection."""
        return replace(self, headers={**self.headers, "connection": "close"})


def answer_to(error: RenderError) -> Answer:
    """Return what a request that failed with ``error`` is told."""
    for class_, status, type_ in _TABLE:
        if isinstance(error, class_):
            headers = {"content-type": "application/json"}
            if isinstance(error, Overloaded):
                headers["retry-after"] = str(max(1, round(error.retry_after)))
            return Answer(status, headers, error_body(status, type_, error.message, error.param))
    raise error


def answer_to_any(error: Exception, failed: str) -> Answer:
    """Return what is told of any error. A bug is logged as one of ``failed`` ("A stream"), and is a 500."""
    if isinstance(error, RenderError):
        return answer_to(error)
    log.error("%s failed.", failed, exc_info=error)
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    body = error_body(status, "InternalServerError", "The server failed.")
    return Answer(status, {"content-type": "application/json"}, body)


def error_body(status: int, type_: str, message: str, param: str | None = None) -> bytes:
    """Return OpenAI's error object as JSON: valid UTF-8, and short whatever ``message`` is."""
    shown = message.encode("utf-8", "replace").decode()[:_MAX_MESSAGE_CHARS]
    error: dict[str, Any] = {"message": shown, "type": type_, "param": param, "code": status}
    return msgspec.json.encode({"error": error})


def _response(status: int, type_: str, message: str) -> Response:
    return Response(error_body(status, type_, message), status, content_type="application/json")


def _response_of(answer: Answer) -> Response:
    return Response(answer.body, answer.status, dict(answer.headers))


def register_error_handlers(app: Quart) -> None:
    """Answer every failure of ``app`` in this shape: ours, the framework's, and bugs (500, logged)."""

    @app.errorhandler(RenderError)
    async def known(error: RenderError) -> Response:
        return _response_of(answer_to(error))

    @app.errorhandler(HTTPException)
    async def framework(error: HTTPException) -> Response:
        status = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
        phrase = HTTPStatus(status).phrase
        response = _response(status, phrase, f"{phrase}.")
        allow = error.get_response().headers.get("Allow")
        if allow is not None:
            response.headers["Allow"] = allow
        return response

    @app.errorhandler(Exception)
    async def bug(error: Exception) -> Response:
        return _response_of(answer_to_any(error, "A request"))
