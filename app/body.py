"""Read a request's body, bounded in size and time, without joining or looking into it."""

from __future__ import annotations

from collections.abc import AsyncIterable

import trio
from quart import Request, g

from trio_render.render.embeds.memory import anonymous_memory

from .errors import BodyTooLarge, UnsupportedContentType
from .settings import Settings

__all__ = ["Pieces", "body_is_done", "discard", "forget", "read_json_body"]

_DISCARD_BYTES = 16 * 1024 * 1024
_DISCARD_S = 5.0
_FORGET_AT_ONCE = 32
_PIECE_BYTES = 2 * 1024 * 1024


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


async def read_json_body(request: Request, settings: Settings) -> list[bytes | memoryview]:
    """Return the body in pieces, as it arrived; the worker joins them. How long it takes is up to the caller.

    Raises:
        UnsupportedContentType: declared as something other than JSON.
        BodyTooLarge: declared or counted over ``largest_body``, chunked bodies included.
    """
    _check_content_type(request.headers.get("Content-Type"))
    if request.content_length is not None and request.content_length > settings.largest_body:
        g.body_is_hopeless = True
        raise _too_large(settings)
    body = Pieces()
    async for chunk in request.body:
        body.add(chunk)
        if body.size > settings.largest_body:
            g.body_is_hopeless = True
            raise _too_large(settings)
    g.body_is_read = True
    return body.pieces


async def forget(pieces: list[bytes | memoryview]) -> None:
    """Empty a body's list in steps: to free 90 MB at once takes milliseconds of the event loop."""
    while pieces:
        del pieces[-(1 if isinstance(pieces[-1], memoryview) else _FORGET_AT_ONCE) :]
        if pieces:
            await trio.lowlevel.cancel_shielded_checkpoint()


async def body_is_done(request: Request) -> bool:
    """Say whether the connection's next request starts where it should.

    A body that nobody has read, because its request was refused for another reason, is read now and
    forgotten: what is left of it would be taken for the next request. Not if it is too large for that.
    """
    if g.get("body_is_read", False):
        return True
    if g.get("body_is_hopeless", False):
        return False
    return await discard(request.body)


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
