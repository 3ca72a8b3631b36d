"""Open-loop load: requests go out when they are due, however late the answers to others are.

Latency counts from when a request was due, so that a server that stalls can't hide it by being sent less.
The client is one process, which sends over as many connections as it needs.
"""

from __future__ import annotations

import math
import random
import socket
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe

import trio

from .child import child
from .http_client import connected
from .mix import CHUNKS_PER_S, STREAM, Mix, schedule
from .stream_clients import SocketStream, chunk_json

__all__ = ["Seen", "send_mix"]

_LEAD_S = 0.2
_GRACE_S = 10.0
_DERENDER = "/v1/chat/completions/derender"
_OPENING = b'{"chat_request":{"messages":[{"role":"user","content":"Hello"}]}}'


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of one request. ``status`` 0: no answer came; it had taken ``latency_s`` by then."""

    kind: str
    due_s: float
    latency_s: float
    status: int


def send_mix(url: str, mix: Mix) -> list[Seen]:
    """Send all of a mix, in a process of its own."""
    with child("the client of the mixed load", _run, url, mix) as pipe:
        seen: list[Seen] = pipe.recv()
        return seen


def _run(url: str, mix: Mix, pipe: Pipe) -> None:
    pipe.send(trio.run(_Client(url, mix).run))


class _Client:
    def __init__(self, url: str, mix: Mix) -> None:
        self._url = url
        self._mix = mix
        self._scheduled = schedule(mix)
        self._idle: list[trio.SocketStream] = []
        self._seen: list[Seen] = []
        self._began = math.inf

    async def run(self) -> list[Seen]:
        """Send everything, and wait for the answers, but not forever."""
        stream = SocketStream(self._url, _DERENDER, _OPENING)
        self._began = trio.current_time() + _LEAD_S
        with trio.move_on_at(self._began + self._mix.seconds + _GRACE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stream, stream)
                for one in self._scheduled:
                    await trio.sleep_until(self._began + one.due_s)
                    nursery.start_soon(self._exchange, one.kind, one.due_s, one.request)
        return self._seen

    async def _exchange(self, kind: str, due_s: float, request: bytes) -> None:
        status = 0
        try:
            sock = self._idle.pop() if self._idle else _wrapped(connected(self._url))
            await sock.send_all(request)
            status = await _status(sock)
            self._idle.append(sock)
        except trio.BrokenResourceError:
            # Whoever cuts a connection has not answered.
            status = 0
        finally:
            self._note(kind, due_s, status)

    async def _stream(self, client: SocketStream) -> None:
        """Send a chunk of one stream 50 times a second, and note when each is answered."""
        sock = _wrapped(client.sock)
        rng = random.Random(1)
        dues = [n / CHUNKS_PER_S for n in range(int(self._mix.seconds * CHUNKS_PER_S))]
        chunks = [chunk_json([rng.randrange(100, self._mix.vocab_size)]) for _ in dues]
        answered = 0
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_chunks, sock, [client.message(chunk) for chunk in chunks], dues)
                data = bytearray()
                while answered < len(dues):
                    more = await sock.receive_some()
                    if not more:
                        break
                    data += more
                    while (length := client.answer_length(data)) is not None and len(data) >= length:
                        del data[:length]
                        self._note(STREAM, dues[answered], 200)
                        answered += 1
        finally:
            for due in dues[answered:]:
                self._note(STREAM, due, 0)

    async def _send_chunks(self, sock: trio.SocketStream, messages: list[bytes], dues: list[float]) -> None:
        for message, due in zip(messages, dues, strict=True):
            await trio.sleep_until(self._began + due)
            await sock.send_all(message)

    def _note(self, kind: str, due_s: float, status: int) -> None:
        self._seen.append(Seen(kind, due_s, trio.current_time() - self._began - due_s, status))


def _wrapped(sock: socket.socket) -> trio.SocketStream:
    return trio.SocketStream(trio.socket.from_stdlib_socket(sock))


async def _status(sock: trio.SocketStream) -> int:
    """Read an answer and return its status; 0 where the server closes instead."""
    data = bytearray()
    length = math.inf
    while len(data) < length:
        more = await sock.receive_some(1 << 18)
        if not more:
            return 0
        data += more
        end = data.find(b"\r\n\r\n") if length == math.inf else -1
        if end >= 0:
            head = bytes(data[:end]).lower()
            length = end + 4 + int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
    return int(bytes(data[:12]).split()[1])
