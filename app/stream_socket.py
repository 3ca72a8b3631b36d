"""One stream per WebSocket: the request first, then chunks, each answered by the chunk for its client."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus

import trio
from quart import websocket

from trio_render import DeadlineExceeded, DerenderStream
from trio_render.offload.jobs import Body

from .errors import BodyTimeout, BodyTooLarge, answer_to_any
from .services import Services

__all__ = ["OpenStream", "converse"]

OpenStream = Callable[[Body], AbstractAsyncContextManager[DerenderStream[Body, bytes]]]

_GOING_AWAY = 1001
_POLICY_VIOLATION = 1008
_TOO_BIG = 1009
_INTERNAL_ERROR = 1011
_TRY_AGAIN_LATER = 1013
_CLIENT_CLOSES_WITHIN_S = 1.0


async def converse(services: Services, route: str, open_stream: OpenStream) -> None:
    """Serve the current WebSocket until its client ends it, makes a mistake, or the server stops.

    An error is sent as OpenAI's error object before the socket is closed: with 1008 where the client is at
    fault, 1009 for a message over the limit, 1013 where it may try again, 1011 otherwise. A server that
    stops closes it with 1001, after the time that it gives to running requests.
    """
    await websocket.accept()
    status = int(HTTPStatus.SWITCHING_PROTOCOLS)
    code = _GOING_AWAY
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_with_server, services, nursery.cancel_scope)
            try:
                await _answer_messages(services, open_stream)
            except Exception as error:
                status, code = await _send_error(error)
            nursery.cancel_scope.cancel()
    finally:
        services.metrics.count_request(route, status)
    await websocket.close(code)
    # Closed with messages unread, the connection would be reset, and the error lost.
    with trio.move_on_after(_CLIENT_CLOSES_WITHIN_S):
        while True:
            await websocket.receive()


async def _answer_messages(services: Services, open_stream: OpenStream) -> None:
    settings = services.settings
    # Looked up once, not for each message.
    receive, send, limit = websocket.receive, websocket.send, settings.max_message
    first = None
    with trio.move_on_after(settings.body_timeout_s):
        first = _body(await receive(), limit)
    if first is None:
        raise BodyTimeout(f"The first message did not arrive within {settings.body_timeout_s:g} s.")
    services.offloader.check_admission("derender")
    async with open_stream(first) as stream:
        # One scope for all steps, with a deadline while one runs: a scope costs more than a deadline.
        with trio.CancelScope() as scope:
            while True:
                body = _body(await receive(), limit)
                scope.deadline = trio.current_time() + settings.request_timeout_s
                answer = await stream.step(body)
                scope.deadline = math.inf
                await send(answer.decode())
        raise DeadlineExceeded(f"The chunk was not done within {settings.request_timeout_s:g} s.")


def _body(message: str | bytes | None, limit: int) -> Body:
    """Return a message as a body. ``None`` stands for one that was too large to be kept, or empty."""
    if message is None:
        raise BodyTooLarge(f"A message must not be empty, nor over {limit} bytes.")
    return [message.encode() if isinstance(message, str) else message]


async def _end_with_server(services: Services, scope: trio.CancelScope) -> None:
    await services.wait_end_of_streams()
    scope.cancel()


async def _send_error(error: Exception) -> tuple[int, int]:
    """Send an error object; return its status and the code to close with."""
    answer = answer_to_any(error, "A stream")
    await websocket.send(answer.body.decode())
    return answer.status, _close_code(answer.status)


def _close_code(status: int) -> int:
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return _TOO_BIG
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return _TRY_AGAIN_LATER
    return _POLICY_VIOLATION if status < HTTPStatus.INTERNAL_SERVER_ERROR else _INTERNAL_ERROR
