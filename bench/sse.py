"""Completions streamed through the front end, as a client sees them: server-sent events over a socket."""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple

from .child import child
from .http_client import Connection, connected, request_bytes

__all__ = ["Late", "Streamed", "lateness", "streaming"]

_PATH = "/v1/completions"
_MARK = b"data: "
_END = b"[DONE]"


@dataclass(slots=True)
class Streamed:
    """What came of one stream: when each event arrived, by the clock that all processes share."""

    name: str
    arrived: list[float] = field(default_factory=list)


@contextmanager
def streaming(url: str, streams: int, tokens: int) -> Iterator[list[Streamed]]:
    """Stream completions beside the block. The list it yields is filled when the block has ended."""
    found: list[Streamed] = []
    with child("the streaming client", _run, url, streams, tokens) as pipe:
        pipe.recv()
        yield found
        found += pipe.recv()


class Late(NamedTuple):
    """A chunk: when the engine sent it, and how long after that it arrived."""

    sent: float
    ms: float


def lateness(upstream_url: str, streams: list[Streamed]) -> list[Late]:
    """Return of each chunk of paced streams how late it arrived."""
    with Connection(upstream_url) as connection:
        sent: dict[str, list[float]] = json.loads(connection.exchange(request_bytes("GET", "/sent"))[1])
    late = []
    for stream in streams:
        times = next(times for request_id, times in sent.items() if f"-{stream.name}-" in f"{request_id}-")
        arrived = stream.arrived[: len(times)]
        late += [Late(then, (there - then) * 1000) for then, there in zip(times, arrived, strict=True)]
    return late


def _run(url: str, streams: int, tokens: int, pipe: Pipe) -> None:
    names = [f"bench{time.monotonic_ns()}x{n}" for n in range(streams)]
    common = {"prompt": "Hello", "max_tokens": tokens, "stream": True}
    bodies = [json.dumps({**common, "request_id": name}).encode() for name in names]
    connections = [connected(url) for _ in names]
    pipe.send("ready")
    with selectors.DefaultSelector() as selector:
        readers = [_Reader(*pair) for pair in zip(connections, names, strict=True)]
        for reader, body in zip(readers, bodies, strict=True):
            selector.register(reader.sock, selectors.EVENT_READ, reader)
            reader.sock.sendall(request_bytes("POST", _PATH, body))
        while selector.get_map():
            for key, _ in selector.select():
                if key.data.has_ended():
                    selector.unregister(key.fileobj)
                    key.data.sock.close()
    pipe.send([reader.streamed for reader in readers])


class _Reader:
    """Counts events. The framing of chunks may fall between any two bytes, so a mark is looked for across."""

    def __init__(self, sock: socket.socket, name: str) -> None:
        self.sock = sock
        self.streamed = Streamed(name)
        self._tail = b""
        self._seen = b""

    def has_ended(self) -> bool:
        """Read what has come, and say whether it was the last."""
        data = self._tail + self.sock.recv(1 << 16)
        now = time.monotonic()
        if not self._seen:
            self._seen = data[:300]
            if not data.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(data[:500].decode("latin-1"))
        if data == self._tail:
            raise ConnectionError("the server closed the connection")
        self.streamed.arrived += [now] * data.count(_MARK)
        last = data.rfind(_MARK)
        behind = 0 if last < 0 else last + len(_MARK)
        self._tail = data[max(behind, len(data) - len(_MARK) + 1) :]
        return _END in data
