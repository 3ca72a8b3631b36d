"""Read a request's body, bounded in size and time, without joining or looking into it."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from typing import Self

import trio
from hypercorn.typing import ASGIReceiveCallable, HTTPScope

from trio_render.render.embeds.memory import anonymous_memory

from .errors import BodyTooLarge, UnsupportedContentType
from .settings import Settings

__all__ = ["Incoming", "Pieces", "Received", "ReceivedBody", "discard", "forget", "read_json_body"]

_DISCARD_BYTES = 16 * 1024 * 1024
_DISCARD_S = 5.0
_FORGET_AT_ONCE = 32
_SIZE_DIGITS = 20
_PIECE_BYTES = 2 * 1024 * 1024


class ReceivedBody:
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


class Incoming:
    """A request whose body is to be read.

    Args:
        header: returns a header by its name, in whatever case, or ``None``.
        chunks: the body.

    Attributes:
        is_read: the body is complete.
        is_hopeless: nobody will read what is left of it.
    """

    __slots__ = ("chunks", "header", "is_hopeless", "is_read")

    def __init__(self, header: Callable[[str], str | None], chunks: AsyncIterable[bytes]) -> None:
        self.header = header
        self.chunks = chunks
        self.is_read = False
        self.is_hopeless = False

    def declared_size(self) -> int:
        """Return what the head says of the body's size in bytes; 0 where it says nothing."""
        value = self.header("Content-Length") or ""
        return int(value[:_SIZE_DIGITS]) if value.isdecimal() else 0

    async def is_done(self) -> bool:
        """Say whether the connection's next request starts where it should.

        A body that nobody has read, because its request was refused for another reason, is read now and
        forgotten: what is left of it would be taken for the next request. Not if it is too large for that.
        """
        if self.is_read or self.is_hopeless:
            return self.is_read
        return await discard(self.chunks)


class Received(Incoming):
    """A request that comes to us as it comes from hypercorn, not through Quart.

    Attributes:
        body: its body.
        receive: what tells of the rest of it, and of its client's end.
    """

    __slots__ = ("body", "receive")

    def __init__(self, scope: HTTPScope, receive: ASGIReceiveCallable) -> None:
        # Where a header is there twice, the first one counts.
        headers = dict(reversed(list(scope["headers"])))

        def header(name: str) -> str | None:
            value = headers.get(name.lower().encode())
            return None if value is None else value.decode("latin-1")

        self.body = ReceivedBody(receive)
        self.receive = receive
        super().__init__(header, self.body)
        # What has no body need not be waited for.
        is_framed = not scope["http_version"].startswith("1")
        self.is_read = not (is_framed or b"content-length" in headers or b"transfer-encoding" in headers)


class Pieces:
    """A body as it arrives: ``pieces``, of ``size`` bytes in all.

    What is beyond the first megabytes is moved into memory of its own. The allocator's goes back to the
    system whenever the end of it is free: hundreds of chunks at a time, for 10 ms of the event loop.
    """

    def __init__(self) -> None:
        self.pieces: list[bytes | memoryview] = []
        self.size = 0
        self._memory = memoryview(b"")
        self._filled = 0

    def add(self, chunk: bytes) -> None:
        """Append a chunk."""
        self.size += len(chunk)
        if self.size <= _PIECE_BYTES:
            self.pieces.append(chunk)
            return
        rest = memoryview(chunk)
        while rest:
            if self._filled == len(self._memory):
                self._memory = memoryview(anonymous_memory(_PIECE_BYTES))
                self._filled = 0
                self.pieces.append(self._memory[:0])
            part = rest[: len(self._memory) - self._filled]
            end = self._filled + len(part)
            self._memory[self._filled : end] = part
            self._filled = end
            self.pieces[-1] = self._memory[:end]
            rest = rest[len(part) :]


async def read_json_body(incoming: Incoming, settings: Settings) -> list[bytes | memoryview]:
    """Return the body in pieces, as it arrived; the worker joins them. How long it takes is up to the caller.

    Raises:
        UnsupportedContentType: declared as something other than JSON.
        BodyTooLarge: declared or counted over ``largest_body``, chunked bodies included.
    """
    _check_content_type(incoming.header("Content-Type"))
    if incoming.declared_size() > settings.largest_body:
        incoming.is_hopeless = True
        raise _too_large(settings)
    body = Pieces()
    async for chunk in incoming.chunks:
        body.add(chunk)
        if body.size > settings.largest_body:
            incoming.is_hopeless = True
            raise _too_large(settings)
    incoming.is_read = True
    return body.pieces


async def forget(pieces: list[bytes | memoryview]) -> None:
    """Empty a body's list in steps: to free 90 MB at once takes milliseconds of the event loop."""
    while pieces:
        del pieces[-(1 if isinstance(pieces[-1], memoryview) else _FORGET_AT_ONCE) :]
        if pieces:
            await trio.lowlevel.cancel_shielded_checkpoint()


async def discard(chunks: AsyncIterable[bytes]) -> bool:
    """Read a body and forget it. Says whether it ended before it was too large or too late for that."""
    size = 0
    with trio.move_on_after(_DISCARD_S):
        async for chunk in chunks:
            size += len(chunk)
            if size > _DISCARD_BYTES:
                return False
        return True
    return False


def _check_content_type(value: str | None) -> None:
    """Accept JSON, ``…+json``, and nothing at all (the reference refuses forms and texts)."""
    if value is None:
        return
    kind = value.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedContentType("The Content-Type must be application/json.")


def _too_large(settings: Settings) -> BodyTooLarge:
    return BodyTooLarge(f"The request's body is over the limit of {settings.largest_body} bytes.")
