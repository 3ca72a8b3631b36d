"""Bounds on the WebSockets of hypercorn, which keeps what a client sends behind a message that was too large.

It answers such a message with a close frame, but reads on, and its app never learns of it. Here the app gets
a message of nothing instead, and no more is kept than the limit. Compression is never agreed on: chunks are
small, it would be work for the event loop, and a small frame could unpack into a huge one. All of it is
private to hypercorn: the version is pinned, and tests hold each cure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypercorn.protocol import ws_stream
from wsproto.events import Message

__all__ = ["bounded_messages"]


class _BoundedBuffer(ws_stream.WebsocketBuffer):
    """Keeps no message over the limit, which is a number of characters for text."""

    def extend(self, event: Message[Any]) -> None:
        if self.length + len(event.data) > self.max_length:
            self.value = None
            self.length = self.max_length
            return
        super().extend(event)

    def to_message(self) -> dict[str, Any]:
        if self.value is None:
            return {"type": "websocket.receive", "bytes": None, "text": None}
        return super().to_message()


class _PlainHandshake(ws_stream.Handshake):
    """Accepts no extension."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.extensions = None


@contextmanager
def bounded_messages() -> Iterator[None]:
    """Let `hypercorn.trio.serve`, called within the block, serve such WebSockets."""
    hook: Any = ws_stream
    originals = hook.WebsocketBuffer, hook.Handshake
    hook.WebsocketBuffer, hook.Handshake = _BoundedBuffer, _PlainHandshake
    try:
        yield
    finally:
        hook.WebsocketBuffer, hook.Handshake = originals
