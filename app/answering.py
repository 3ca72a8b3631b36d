"""What every working route does: admission, deadline, body, one call, answer."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import trio
from hypercorn.typing import ASGISendCallable
from quart import Request, Response, g, request

from trio_render import DeadlineExceeded, InvalidRequest
from trio_render.offload.jobs import Body
from trio_render.offload.limits import Kind

from .body import Incoming, Received, forget, read_json_body
from .errors import Answer, BodyTimeout, answer_to_any
from .sending import give
from .services import Services
from .sse import EventStream, OpenStream

__all__ = ["KINDS_OF", "Work", "answer_json", "answer_started", "incoming_of"]

R = TypeVar("R")

Work = Callable[[Body, str | None], Awaitable[bytes]]
"""Makes a JSON answer of a JSON body and the request's id, which the head may have given."""

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
_ID_HEADER = "X-Request-Id"
_JSON = {"content-type": "application/json"}


class Started(Protocol):
    """A request that was checked, and can be answered either way."""

    @property
    def streams(self) -> bool: ...

    async def answer_json(self) -> bytes: ...

    @property
    def open_stream(self) -> OpenStream: ...


async def answer_json(
    services: Services, route: str, work: Work, received: Received, send: ASGISendCallable
) -> None:
    """Answer a request with what ``work`` makes of its body, without Quart.

    Cancellation: a client that hangs up ends the work.
    """
    request_id = received.header(_ID_HEADER)
    is_finishing = False

    async def watch() -> None:
        while (await received.receive())["type"] != "http.disconnect":
            pass
        # It may only say that the answer is complete.
        if not is_finishing:
            nursery.cancel_scope.cancel()

    async def work_watched(pieces: Body, first_by: float, timeout_s: float) -> bytes:
        if received.body.gone:
            nursery.cancel_scope.cancel()
            await trio.lowlevel.checkpoint_if_cancelled()
        nursery.start_soon(watch)
        return await work(pieces, request_id)

    async with trio.open_nursery() as nursery:
        try:
            answer = Answer(200, _JSON, await _within_bounds(services, received, work_watched))
        except Exception as error:
            answer = answer_to_any(error, "A request")
        services.metrics.count_request(route, answer.status)
        is_finishing = True
        await give(answer, received, send)
        nursery.cancel_scope.cancel()


async def answer_started(
    services: Services, start: Callable[[Body, str | None], Awaitable[Started]]
) -> Response:
    """Return the answer to the request that ``start`` makes of the current body, whole or as a stream.

    A stream's time is counted up to its first event, and from each event to the next.

    Raises: as `_within_bounds` does; `Overloaded` when the queue for its kind of work is full, and the body
    has not been looked at.
    """
    rule = request.url_rule
    route = "unknown" if rule is None else rule.rule
    incoming = incoming_of(request)
    # Most were refused in app.early; not those whose path it doesn't know as it was written.
    for kind in KINDS_OF[route]:
        services.offloader.check_admission(kind)

    async def answer(body: Body, first_by: float, timeout_s: float) -> Response:
        started = await start(body, incoming.header(_ID_HEADER))
        if not started.streams:
            return Response(await started.answer_json(), content_type="application/json")

        def count(status: int) -> None:
            services.metrics.count_request(route, status)

        return EventStream(started.open_stream, first_by, timeout_s, count, services.wait_end_of_streams)

    return await _within_bounds(services, incoming, answer)


def incoming_of(current: Request) -> Incoming:
    """Return Quart's current request as one whose body is to be read, or has been."""
    if "incoming" not in g:
        g.incoming = Incoming(current.headers.get, current.body)
    incoming: Incoming = g.incoming
    return incoming


async def _within_bounds(
    services: Services, incoming: Incoming, work: Callable[[Body, float, float], Awaitable[R]]
) -> R:
    """Return what ``work`` makes of a request's body, in the time that the request has.

    Raises:
        BodyTimeout: the body is not complete within ``body_timeout_s``.
        DeadlineExceeded: the request's time is over; its work has stopped.
        RenderError: see `read_json_body`, and what ``work`` raises.
    """
    timeout_s = _timeout_s(incoming, services.settings.request_timeout_s)
    body_timeout_s = services.settings.body_timeout_s
    began = trio.current_time()
    with trio.CancelScope(deadline=began + min(body_timeout_s, timeout_s)) as scope:
        body = await read_json_body(incoming, services.settings)
        scope.deadline = began + timeout_s
        try:
            return await work(body, scope.deadline, timeout_s)
        finally:
            await forget(body)
    if not incoming.is_read:
        incoming.is_hopeless = True
        if body_timeout_s < timeout_s:
            raise BodyTimeout(f"The request's body did not arrive within {body_timeout_s:g} s.")
    raise DeadlineExceeded(f"The request was not done within {timeout_s:g} s.")


def _timeout_s(incoming: Incoming, most: float) -> float:
    given = incoming.header(_TIMEOUT_HEADER)
    if given is None:
        return most
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InvalidRequest(f"{_TIMEOUT_HEADER} must be a number of seconds above 0.", _TIMEOUT_HEADER)
    return min(seconds, most)
