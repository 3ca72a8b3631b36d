"""Server-sent events: a response whose sending owns the work behind it, from the first event to the last."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any

import trio
from hypercorn.typing import ASGISendCallable
from quart_trio.wrappers import TrioResponse

from trio_render import DeadlineExceeded, Overloaded
from trio_render.engine.wire import DONE, error_event
from trio_render.protocol.decoding import encode

from .errors import answer_to_any

__all__ = ["EventStream"]

_KEEP_ALIVE_S = 15.0
_COME_BACK_S = 1.0
_KEEP_ALIVE = b": keep-alive\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

OpenStream = Callable[[], AbstractAsyncContextManager[AsyncIterator[Any]]]


class EventStream(TrioResponse):
    """A streamed answer, one event per chunk, ``[DONE]`` behind the last.

    Nothing runs before `send_to` is called, and nothing behind its end. What goes wrong before the first
    event is answered with its own status; what goes wrong later is an event with OpenAI's error object.
    A comment is sent now and then where no event comes: proxies close what is silent, and only a write
    finds a peer that has vanished.

    Args:
        open_stream: yields wire types. Its iterator must lose nothing when a wait for the next is cancelled.
        first_by: when the first event must have come, as `trio.current_time` counts.
        timeout_s: longest time from an event to the next.
        count: told the status, once.
        must_end: returns when the server stops: what is left of the answer is an error.
        keep_alive_s: longest silence before a comment is sent.
    """

    def __init__(
        self,
        open_stream: OpenStream,
        first_by: float,
        timeout_s: float,
        count: Callable[[int], None],
        must_end: Callable[[], Awaitable[None]],
        keep_alive_s: float = _KEEP_ALIVE_S,
    ) -> None:
        super().__init__(b"", content_type="text/event-stream")
        self._open_stream = open_stream
        self._deadline = first_by
        self._timeout_s = timeout_s
        self._count = count
        self._must_end = must_end
        self._keep_alive_s = keep_alive_s
        self._started = False
        self._ends = False
        self._waiting = trio.CancelScope()

    async def send_to(self, send: ASGISendCallable, finishing: Callable[[], None]) -> None:
        """Send the answer. ``finishing`` is called before the last of it goes out."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_with_server)
            await self._send_answer(send, finishing)
            nursery.cancel_scope.cancel()

    async def _end_with_server(self) -> None:
        await self._must_end()
        self._ends = True
        # Nothing but the wait for an event: a write is not to be cut.
        self._waiting.cancel()

    async def _send_answer(self, send: ASGISendCallable, finishing: Callable[[], None]) -> None:
        try:
            async with self._open_stream() as chunks:
                await self._send_chunks(chunks, send)
        except Exception as error:
            answer = answer_to_any(error, "A stream")
            if not self._started:
                self._count(answer.status)
                await send(answer.head)
                finishing()
                await send({"type": "http.response.body", "body": answer.body, "more_body": False})
                return
            tail = error_event(answer.body) + DONE
        else:
            await self._start(send)
            tail = DONE
        finishing()
        await send({"type": "http.response.body", "body": tail, "more_body": False})

    async def _send_chunks(self, chunks: AsyncIterator[Any], send: ASGISendCallable) -> None:
        while True:
            try:
                event = await self._next(chunks)
            except StopAsyncIteration:
                return
            await self._start(send)
            await send({"type": "http.response.body", "body": event, "more_body": True})
            if event is not _KEEP_ALIVE:
                # Counted from here: a client that reads slowly takes none of the engine's time.
                self._deadline = trio.current_time() + self._timeout_s

    async def _next(self, chunks: AsyncIterator[Any]) -> bytes:
        """Return the next event, or a comment where none comes in time."""
        until = self._deadline
        if self._started:
            until = min(until, trio.current_time() + self._keep_alive_s)
        self._waiting = trio.CancelScope(deadline=until)
        if self._ends:
            self._waiting.cancel()
        with self._waiting:
            return b"data: %b\n\n" % encode(await anext(chunks))
        if self._ends:
            raise Overloaded("The server is stopping.", _COME_BACK_S)
        if trio.current_time() >= self._deadline:
            raise DeadlineExceeded(f"Nothing was generated within {self._timeout_s:g} s.")
        return _KEEP_ALIVE

    async def _start(self, send: ASGISendCallable) -> None:
        if not self._started:
            self._started = True
            self._count(HTTPStatus.OK)
            await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": _HEADERS})
