"""Connections that don't behave: clients that stop reading, vanish, or hang up behind a request they queued.

hypercorn sends without a deadline, sets no TCP keep-alive, and stops reading a connection on which a
second request has arrived, so it learns of none of these. Its TCP server class is a private hook: the
version is pinned, and tests hold each cure.
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import hypercorn.trio.run
import trio
from hypercorn.events import Closed, Event, RawData
from hypercorn.trio.tcp_server import TCPServer

from trio_render.offload.background import background_tasks

from .websocket_bounds import bounded_messages

__all__ = ["bounded_connections"]

log = logging.getLogger("trio_render.app")

_LOOK_S = 0.1
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
_SEND_BYTES = 64 * 1024
_HEAD_BYTES = 4096
_POLLRDHUP = getattr(select, "POLLRDHUP", None)


class _PeerWatch:
    """Looks at all sockets at once for peers that have closed their end.

    hypercorn notices those itself where it reads; so a connection is only given up when its peer was
    gone at two looks in a row.
    """

    def __init__(self) -> None:
        self._scopes: dict[int, trio.CancelScope] = {}
        self._poll = select.poll()
        self._suspects: set[int] = set()

    def add(self, fd: int, scope: trio.CancelScope) -> None:
        if _POLLRDHUP is not None:
            self._scopes[fd] = scope
            self._poll.register(fd, _POLLRDHUP)

    def remove(self, fd: int) -> None:
        if self._scopes.pop(fd, None) is not None:
            self._poll.unregister(fd)
            self._suspects.discard(fd)

    async def look(self) -> None:
        while True:
            await trio.sleep(_LOOK_S)
            gone = {fd for fd, _ in self._poll.poll(0)} if self._scopes else set()
            for fd in gone & self._suspects:
                self._scopes[fd].cancel()
            self._suspects = gone


class _BoundedTCPServer(TCPServer):
    """hypercorn's connection, with a deadline on every send and an eye on the peer's end.

    The head of an answer whose length is known is sent together with what follows it.
    """

    watch: _PeerWatch
    write_timeout_s: float

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._reading = trio.CancelScope()
        self._head = b""

    async def run(self) -> None:
        sock = _socket(self.stream)
        fd = sock.fileno()
        _keep_alive(sock)
        try:
            with trio.CancelScope() as scope:
                self.watch.add(fd, scope)
                await super().run()
        except Exception:
            # Whatever a client does to its connection must not end the server.
            log.warning("A connection failed.", exc_info=True)
        finally:
            self.watch.remove(fd)
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self.stream)

    async def _read_data(self) -> None:
        with self._reading:
            await super()._read_data()
        # Else the connection's tasks end only when its keep-alive time is over.
        await self.idle_task.stop()

    async def protocol_send(self, event: Event) -> None:
        if not isinstance(event, RawData):
            await super().protocol_send(event)
            return
        if not self._head and _is_head(event.data):
            # A second send costs as much as all the rest of a small answer.
            self._head = event.data
            return
        data, self._head = self._head + event.data, b""
        sent = False
        try:
            async with self.send_lock:
                sent = await self._send(data)
        finally:
            if not sent:
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(self.stream)
                    await self.protocol.handle(Closed())
                # The reader may wait for a response that will not end.
                self._reading.cancel()

    async def _send(self, data: bytes) -> bool:
        """Send piece by piece, so that a slow but honest reader meets no deadline."""
        view = memoryview(data)
        try:
            for start in range(0, len(view), _SEND_BYTES):
                with trio.fail_after(self.write_timeout_s):
                    await self.stream.send_all(view[start : start + _SEND_BYTES])
        except (
            trio.BrokenResourceError,
            trio.ClosedResourceError,
            trio.BusyResourceError,
            trio.TooSlowError,
        ):
            return False
        return True


def _is_head(data: bytes) -> bool:
    """Say whether something follows at once, if it is only nothing: hypercorn sends an answer's end, too."""
    return data.startswith(b"HTTP/1.1 ") and b"\r\ncontent-length: " in data[:_HEAD_BYTES]


def _socket(stream: Any) -> trio.socket.SocketType:
    while not isinstance(stream, trio.SocketStream):
        stream = stream.transport_stream
    return stream.socket


def _keep_alive(sock: trio.socket.SocketType) -> None:
    """Let the kernel find out that a silent peer is gone, within about a minute."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


@asynccontextmanager
async def bounded_connections(write_timeout_s: float) -> AsyncIterator[None]:
    """Let `hypercorn.trio.serve`, called within the block, serve such connections."""
    watch = _PeerWatch()
    class_ = type("_TCPServer", (_BoundedTCPServer,), {"watch": watch, "write_timeout_s": write_timeout_s})
    hook: Any = hypercorn.trio.run
    original = hook.TCPServer
    hook.TCPServer = class_
    try:
        with bounded_messages():
            async with background_tasks() as group:
                group.start_soon(watch.look)
                yield
    finally:
        hook.TCPServer = original
