"""The smallest HTTP/1.1 client: one blocking connection, ready-made requests, nothing decoded.

So that the measured time is the server's. Each client runs in a process of its own.
"""

from __future__ import annotations

import socket
from typing import Self
from urllib.parse import urlsplit

__all__ = ["Connection", "connected", "request_bytes"]


def request_bytes(method: str, path: str, body: bytes = b"") -> bytes:
    """Return a whole request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n"
    if body:
        head += "Content-Type: application/json\r\n"
    return head.encode() + b"\r\n" + body


def connected(url: str) -> socket.socket:
    """Return a blocking connection to ``url``."""
    parts = urlsplit(url)
    sock = socket.create_connection((parts.hostname or "", parts.port or 80), timeout=120)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Connection:
    """A keep-alive connection to ``url``."""

    def __init__(self, url: str) -> None:
        self._socket = connected(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def exchange(self, request: bytes) -> tuple[int, bytes]:
        """Send a request and return the answer's status and body."""
        self.send(request)
        return self.receive()

    def send(self, data: bytes) -> None:
        """Send a request, or a part of one."""
        self._socket.sendall(data)

    def receive(self) -> tuple[int, bytes]:
        """Return the next answer's status and body."""
        data = bytearray()
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._received()
        head = bytes(data[:end]).decode("latin-1").lower()
        length = int(head.partition("content-length:")[2].split("\r\n")[0])
        body = data[end + 4 :]
        while len(body) < length:
            body += self._received()
        return int(head.split()[1]), bytes(body)

    def _received(self) -> bytes:
        data = self._socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data
