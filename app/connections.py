"""Connections that don't behave: clients that stop reading, vanish, or hang up behind a request they queued.

hypercorn sends without a deadline, sets no TCP keep-alive, and stops reading a connection on which a
second request has arrived, so it learns of none of these. Its keep-alive timer, a task per connection that
is started for each request, closes a connection on which a request lies unread because the loop is late.
Its TCP server class is a private hook: the version is pinned, and tests hold each cure.
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import hypercorn.trio.run
import trio
from hypercorn.events import Closed, Event, RawData
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import TrioSingleTask
from hypercorn.typing import TaskGroup

from trio_render.offload.background import background_tasks

from .quick_stream import QuickStream
from .websocket_bounds import bounded_messages

__all__ = ["bounded_connections"]

log = logging.getLogger("trio_render.app")

_LOOK_S = 0.1
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
_READ_BYTES = _SEND_BYTES = 64 * 1024
_POLLRDHUP = getattr(select, "POLLRDHUP", 0)


class _IdleClock(TrioSingleTask):
    """Stands where hypercorn keeps the task that closes an idle connection, and notes the time instead."""

    since: float | None = None

    async def restart(self, task_group: TaskGroup, action: Callable[..., Any]) -> None:
        self.since = trio.current_time()

    async def stop(self) -> None:
        self.since = None


class _Watch:
    """Looks at all connections, ten times a second: for peers that have closed their end, and for idle ones.

    hypercorn notices the peers itself where it reads; so a connection is only given up when its peer was
    gone at two looks in a row.
    """

    def __init__(self) -> None:
        self._connections: dict[int, _BoundedTCPServer] = {}
        self._poll = select.poll()
        self._suspects: set[_BoundedTCPServer] = set()

    def add(self, connection: _BoundedTCPServer) -> None:
        self._connections[connection.fd] = connection
        self._poll.register(connection.fd, _POLLRDHUP)

    def remove(self, connection: _BoundedTCPServer) -> None:
        # Its socket is closed, and the number may be another one's already.
        if self._connections.get(connection.fd) is connection:
            del self._connections[connection.fd]
            self._poll.unregister(connection.fd)

    async def look(self) -> None:
        while True:
            await trio.sleep(_LOOK_S)
            if not self._connections:
                continue
            gone = {self._connections[fd] for fd, state in self._poll.poll(0) if state & _POLLRDHUP}
            for connection in gone & self._suspects:
                connection.give_up()
            self._suspects = gone
            for connection in self._connections.values():
                if connection.is_over():
                    connection.give_up()


class _BoundedTCPServer(TCPServer):
    """hypercorn's connection, with a deadline on every send and an eye on the peer's end."""

    watch: _Watch
    write_timeout_s: float

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._socket = _socket(self.stream)
        self.fd = self._socket.fileno()
        self._quick: QuickStream | None = None
        if isinstance(self.stream, trio.SocketStream):
            self._quick = QuickStream(self.stream)
            self.stream: Any = self._quick
        self.idle_task: _IdleClock = _IdleClock()
        self._scope = trio.CancelScope()
        self._reading = trio.CancelScope()
        self._head = b""

    async def run(self) -> None:
        _keep_alive(self._socket)
        try:
            with self._scope:
                self.watch.add(self)
                await super().run()
        except Exception:
            # Whatever a client does to its connection must not end the server.
            log.warning("A connection failed.", exc_info=True)
        finally:
            self.watch.remove(self)
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self.stream)

    def give_up(self) -> None:
        """End the connection and whatever is done for it."""
        self._scope.cancel()

    def is_over(self) -> bool:
        """Say whether the connection has been idle for as long as it may, or is when the server stops."""
        since = self.idle_task.since
        if since is None:
            return False
        expired = trio.current_time() - since > self.config.keep_alive_timeout
        # A loop that is late may not have read yet what came in time.
        return (expired or self.context.terminated.is_set()) and not _is_readable(self.fd)

    async def _read_data(self) -> None:
        with self._reading:
            if self.config.read_timeout is not None:
                await super()._read_data()
            else:
                await self._read_without_timeout()

    async def _read_without_timeout(self) -> None:
        """Do what hypercorn does, without a scope around each read."""
        data = b"..."
        while data:
            try:
                data = bytes(await self.stream.receive_some(_READ_BYTES))
            except (trio.ClosedResourceError, trio.BrokenResourceError):
                break
            await self.protocol.handle(RawData(data))
        await self.protocol.handle(Closed())

    async def protocol_send(self, event: Event) -> None:
        data = event.data if isinstance(event, RawData) else b""
        if _is_head(data):
            # It goes with what follows: a system call less, and a packet.
            self._head += data
            return
        data, self._head = self._head + data, b""
        if data:
            await self._send_or_close(data)
        if not isinstance(event, RawData):
            await super().protocol_send(event)

    async def _send_or_close(self, data: bytes) -> None:
        sent = False
        try:
            # Unlike `async with`, no turn of the loop where nobody else sends.
            try:
                self.send_lock.acquire_nowait()
            except trio.WouldBlock:
                await self.send_lock.acquire()
            try:
                sent = await self._send(data)
            finally:
                self.send_lock.release()
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
            done = self._quick.send_now(view) if self._quick is not None else 0
            for start in range(done, len(view), _SEND_BYTES):
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


def _socket(stream: Any) -> trio.socket.SocketType:
    while not isinstance(stream, trio.SocketStream):
        stream = stream.transport_stream
    return stream.socket


def _is_head(data: bytes) -> bool:
    """Say whether ``data`` may be the head of a final HTTP/1 response. More of that response follows."""
    return data.startswith(b"HTTP/1.") and not data.startswith(b"1", len("HTTP/1.1 "))


def _is_readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


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
    watch = _Watch()
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
