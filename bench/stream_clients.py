"""Clients of streams that cost next to nothing: ready-made bytes, blocking by turns, nothing decoded."""

from __future__ import annotations

import json
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .http_client import connected

__all__ = ["Figures", "HttpStream", "SocketStream", "StreamClient", "chunk_json", "drive"]

_STATE = b'"stream_state":'


def chunk_json(ids: Sequence[int]) -> bytes:
    """Return a `GenerateChunk` of one choice."""
    chunk = {"request_id": "chatcmpl-bench", "choices": [{"index": 0, "token_ids": list(ids)}]}
    return json.dumps(chunk, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Figures:
    """What a client has seen: messages per second, and how long each took, in seconds."""

    rate: float
    latencies: list[float]


class StreamClient(Protocol):
    """One stream on a connection of its own."""

    sock: socket.socket

    def message(self, chunk: bytes) -> bytes:
        """Return what to send for a chunk."""

    def is_answered(self, data: bytearray) -> bool:
        """Say whether ``data`` is a whole answer, and learn from it what the next message needs."""


class HttpStream:
    """A stream over the per-chunk endpoint; ``state`` is carried from answer to request."""

    def __init__(self, url: str, path: str, request: bytes, *, sample_state: bytes = b"") -> None:
        self.sock = connected(url)
        self._path = path.encode()
        self._request = request
        self._state = self._sample = sample_state

    def message(self, chunk: bytes) -> bytes:
        state = b"," + _STATE + self._state if self._state else b""
        body = b'{"stream":true,%b,"generate_chunk":%b%b}' % (self._request, chunk, state)
        head = b"POST %b HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d"
        return head % (self._path, len(body)) + b"\r\n\r\n" + body

    def is_answered(self, data: bytearray) -> bool:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return False
        length = int(data[:end].lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(data) < end + 4 + length:
            return False
        assert data.startswith(b"HTTP/1.1 200"), bytes(data)
        if not self._sample:
            self._state = bytes(data[data.rindex(_STATE) + len(_STATE) : -1])
        return True


class SocketStream:
    """A stream over a WebSocket. The masking key is zero, which changes nothing."""

    def __init__(self, url: str, path: str, request: bytes) -> None:
        self.sock = connected(url)
        head = f"GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        head += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        self.sock.sendall(head.encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += self.sock.recv(1)
        assert answer.startswith(b"HTTP/1.1 101"), answer
        self.sock.sendall(self.message(request))

    def message(self, chunk: bytes) -> bytes:
        if len(chunk) < 126:
            return b"\x81%c\0\0\0\0%b" % (0x80 | len(chunk), chunk)
        return b"\x81\xfe%b\0\0\0\0%b" % (struct.pack(">H", len(chunk)), chunk)

    def is_answered(self, data: bytearray) -> bool:
        length = self.answer_length(data)
        return length is not None and len(data) >= length

    def answer_length(self, data: bytearray) -> int | None:
        """Return how long the answer is that ``data`` begins with, if that can be seen yet."""
        if len(data) < 4:
            return None
        assert data[0] == 0x81, bytes(data)
        if data[1] == 126:
            return 4 + int(struct.unpack(">H", data[2:4])[0])
        return 2 + data[1]


def drive(clients: Sequence[StreamClient], chunks: Callable[[int], Iterable[bytes]]) -> Figures:
    """Send every client its chunks, each when the one before is answered, all clients side by side."""
    latencies: list[float] = []
    with selectors.DefaultSelector() as selector:
        began = time.perf_counter()
        for n, client in enumerate(clients):
            stream = _Running(client, chunks(n))
            if stream.send_next():
                selector.register(client.sock, selectors.EVENT_READ, stream)
            else:
                client.sock.close()
        while selector.get_map():
            for key, _ in selector.select():
                running: _Running = key.data
                if running.receive(latencies) and not running.send_next():
                    selector.unregister(key.fileobj)
                    running.client.sock.close()
        seconds = time.perf_counter() - began
    return Figures(len(latencies) / seconds, latencies)


class _Running:
    def __init__(self, client: StreamClient, chunks: Iterable[bytes]) -> None:
        self.client = client
        self._left = iter(chunks)
        self._data = bytearray()
        self._sent = 0.0

    def send_next(self) -> bool:
        chunk = next(self._left, None)
        if chunk is None:
            return False
        message = self.client.message(chunk)
        self._sent = time.perf_counter()
        self.client.sock.sendall(message)
        return True

    def receive(self, latencies: list[float]) -> bool:
        data = self.client.sock.recv(1 << 16)
        if not data:
            raise ConnectionError(f"the server closed the connection: {bytes(self._data[:300])!r}")
        self._data += data
        if not self.client.is_answered(self._data):
            return False
        latencies.append(time.perf_counter() - self._sent)
        self._data.clear()
        return True
