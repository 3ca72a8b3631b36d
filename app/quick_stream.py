"""A socket's stream that asks the event loop for few turns.

Each system call lets go of the GIL, and so does each turn of the loop. While a job's thread works, the loop
has the GIL back only after a switch interval. Trio's own streams make a turn per read and per write, and a
vain attempt before each wait; this one makes a turn only where there is something to wait for.
"""

from __future__ import annotations

import os

import trio

__all__ = ["QuickStream"]

_READ_BYTES = 64 * 1024
"""Most that is read at once. Memory for more is fetched from the kernel each time: while a large body arrives
by the megabyte, the loop is late by 15 ms."""
_WRITE_BYTES = 1024 * 1024


class QuickStream(trio.abc.HalfCloseableStream):
    """Wraps a `trio.SocketStream`. One task at a time may read, and one write."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.socket = stream.socket
        self._stream = stream
        self._more = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return what has arrived; ``b""`` at the end.

        ``max_bytes`` is not heeded.
        """
        while True:
            if self._more:
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                await trio.lowlevel.wait_readable(self._fd())
            try:
                data = os.read(self._fd(), _READ_BYTES)
            except BlockingIOError:
                self._more = False
                continue
            except OSError as error:
                raise trio.BrokenResourceError from error
            self._more = len(data) == _READ_BYTES
            return data

    def send_now(self, data: memoryview) -> int:
        """Return how many bytes of ``data`` the kernel has taken at once.

        Raises:
            trio.BrokenResourceError: the connection has ended.
            trio.ClosedResourceError: the stream is closed.
        """
        try:
            return os.write(self._fd(), data[:_WRITE_BYTES])
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of ``data``."""
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """See `trio.abc.SendStream`."""
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """Close for writing."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close."""
        await self._stream.aclose()

    def _fd(self) -> int:
        # The number of a closed socket may be another connection's by now.
        fd = self.socket.fileno()
        if fd < 0:
            raise trio.ClosedResourceError
        return fd
