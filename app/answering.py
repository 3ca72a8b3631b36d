"""What every working route does: admission, deadline, body, one call, answer."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import trio
from quart import Request, Response, g, request

from trio_render import DeadlineExceeded, InvalidRequest
from trio_render.offload.limits import Kind

from .body import forget, read_json_body
from .errors import BodyTimeout
from .services import Services

__all__ = ["KIND_OF", "answer_json"]

KIND_OF: dict[str, Kind] = {
    "/v1/chat/completions/render": "render",
    "/v1/completions/render": "render",
    "/v1/chat/completions/derender": "derender",
    "/v1/completions/derender": "derender",
    "/tokenize": "render",
    "/detokenize": "derender",
}
"""The kind of work behind each route that works."""

_TIMEOUT_HEADER = "X-Request-Timeout"


async def answer_json(services: Services, work: Callable[[list[bytes]], Awaitable[bytes]]) -> Response:
    """Return what ``work`` makes of the current request's body.

    Raises:
        Overloaded: the queue for its kind of work is full; the body has not been looked at.
        BodyTimeout: the body is not complete within ``body_timeout_s``.
        DeadlineExceeded: the request's time is over; its work has stopped.
        RenderError: see `read_json_body`, and what ``work`` raises.
    """
    timeout_s = _timeout_s(request, services.settings.request_timeout_s)
    body_timeout_s = services.settings.body_timeout_s
    began = trio.current_time()
    with trio.CancelScope(deadline=began + min(body_timeout_s, timeout_s)) as scope:
        # Most were refused in app.early; not those whose path it doesn't know as it was written.
        services.offloader.check_admission(KIND_OF[request.path])
        body = await read_json_body(request, services.settings)
        scope.deadline = began + timeout_s
        try:
            return Response(await work(body), content_type="application/json")
        finally:
            await forget(body)
    if not g.get("body_is_read", False):
        g.body_is_hopeless = True
        if body_timeout_s < timeout_s:
            raise BodyTimeout(f"The request's body did not arrive within {body_timeout_s:g} s.")
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
