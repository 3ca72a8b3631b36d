"""What every working route does: admission, deadline, body, one call, answer."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import trio
from quart import Request, Response, g, request

from trio_render import DeadlineExceeded, InvalidRequest
from trio_render.offload.limits import Kind

from .body import forget, read_json_body
from .services import Services

__all__ = ["answer_json"]

_TIMEOUT_HEADER = "X-Request-Timeout"


async def answer_json(
    services: Services, kind: Kind, work: Callable[[list[bytes]], Awaitable[bytes]]
) -> Response:
    """Return what ``work`` makes of the current request's body.

    Raises:
        Overloaded: the queue for ``kind`` is full; the body has not been looked at.
        DeadlineExceeded: the request's time is over; its work has stopped.
        RenderError: see `read_json_body`, and what ``work`` raises.
    """
    timeout_s = _timeout_s(request, services.settings.request_timeout_s)
    with trio.move_on_after(timeout_s):
        services.offloader.check_admission(kind)
        body = await read_json_body(request, services.settings)
        try:
            return Response(await work(body), content_type="application/json")
        finally:
            await forget(body)
    if not g.get("body_is_read", False):
        g.body_is_hopeless = True
    raise DeadlineExceeded(f"The request was not done within {timeout_s:g} s.")


def _timeout_s(request: Request, most: float) -> float:
    given = request.headers.get(_TIMEOUT_HEADER)
    if given is None:
        return most
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InvalidRequest(f"{_TIMEOUT_HEADER} must be a number of seconds above 0.", _TIMEOUT_HEADER)
    return min(seconds, most)
