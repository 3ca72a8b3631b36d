"""What every working route does: admission, deadline, body, one call, answer."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio
from quart import Request, Response, g, request

from trio_render import DeadlineExceeded, InvalidRequest
from trio_render.offload.jobs import Body
from trio_render.offload.limits import Kind

from .body import forget, read_json_body
from .errors import BodyTimeout
from .services import Services
from .sse import EventStream, OpenStream

__all__ = ["KINDS_OF", "answer_json", "answer_started"]

KINDS_OF: dict[str, tuple[Kind, ...]] = {
    "/v1/chat/completions/render": ("render",),
    "/v1/completions/render": ("render",),
    "/v1/chat/completions/derender": ("derender",),
    "/v1/completions/derender": ("derender",),
    "/tokenize": ("render",),
    "/detokenize": ("derender",),
    "/v1/chat/completions": ("engine", "render"),
    "/v1/completions": ("engine", "render"),
    "/inference/v1/generate": ("engine", "render"),
}
"""The kinds of work behind each route that works, the scarcest first."""

_TIMEOUT_HEADER = "X-Request-Timeout"


class Started(Protocol):
    """A request that was checked, and can be answered either way."""

    @property
    def streams(self) -> bool: ...

    async def answer_json(self) -> bytes: ...

    @property
    def open_stream(self) -> OpenStream: ...


async def answer_json(services: Services, work: Callable[[Body], Awaitable[bytes]]) -> Response:
    """Return what ``work`` makes of the current request's body, which is JSON. Raises as `_answer` does."""

    async def answer(body: Body, first_by: float, timeout_s: float) -> Response:
        return Response(await work(body), content_type="application/json")

    return await _answer(services, answer)


async def answer_started(
    services: Services,
    start: Callable[[Body, str | None], Awaitable[Started]],
    request_id: str | None,
) -> Response:
    """Return the answer to the request that ``start`` makes of the current body, whole or as a stream.

    A stream's time is counted up to its first event, and from each event to the next.

    Raises: as `_answer` does.
    """
    rule = request.url_rule
    route = "unknown" if rule is None else rule.rule

    async def answer(body: Body, first_by: float, timeout_s: float) -> Response:
        started = await start(body, request_id)
        if not started.streams:
            return Response(await started.answer_json(), content_type="application/json")

        def count(status: int) -> None:
            services.metrics.count_request(route, status)

        return EventStream(started.open_stream, first_by, timeout_s, count, services.wait_end_of_streams)

    return await _answer(services, answer)


async def _answer(services: Services, work: Callable[[Body, float, float], Awaitable[Response]]) -> Response:
    """Return what ``work`` makes of the current request's body, in the time that the request has.

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
        for kind in KINDS_OF[request.path]:
            services.offloader.check_admission(kind)
        body = await read_json_body(request, services.settings)
        scope.deadline = began + timeout_s
        try:
            return await work(body, scope.deadline, timeout_s)
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
