"""An HTTP server over a real socket that does to each connection what a test says, byte by byte."""

import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream

GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)

STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


@dataclass
class Received:
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """One client's connection."""

    def __init__(self, stream: SocketStream, number: int) -> None:
        self._stream = stream
        self._buffer = b""
        self.number = number

    async def request(self) -> Received:
        """Read the next request. Raises one of `GONE` when the client has hung up."""
        while b"\r\n\r\n" not in self._buffer:
            self._buffer += await self._stream.receive()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        line, *fields = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (text.split(": ", 1) for text in fields)}
        length = int(headers["content-length"])
        while len(self._buffer) < length:
            self._buffer += await self._stream.receive()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return Received(line, headers, body)

    async def send(self, data: bytes) -> None:
        await self._stream.send(data)

    async def send_whole(self, body: bytes, status: str = "200 OK", *headers: str) -> None:
        """Send an answer with its length."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def send_chunk(self, data: bytes) -> None:
        """Send a piece of a chunked body."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def send_stream(self, *events: Any, done: bool = True) -> None:
        """Send a whole stream, an event a chunk."""
        await self.send(STREAM_HEAD)
        for event in events:
            await self.send_chunk(event_of(event))
        await self.send_chunk(b"data: [DONE]\n\n" if done else b"\n")
        await self.send(LAST_CHUNK)

    async def until_hung_up(self) -> None:
        with suppress(*GONE):
            while True:
                await self._stream.receive()

    async def close(self) -> None:
        await self._stream.aclose()


Script = Callable[[Connection], Awaitable[None]]


@dataclass
class ScriptedUpstream:
    """The server: ``connections`` counts those that were made, ``opened`` those that there are."""

    url: str
    connections: int = 0
    opened: int = 0
    requests: list[Received] = field(default_factory=list)


@asynccontextmanager
async def scripted_upstream(script: Script) -> AsyncIterator[ScriptedUpstream]:
    """Serve for the length of the block. A connection ends with its script, and where the client hangs up."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    upstream = ScriptedUpstream(f"http://127.0.0.1:{port}")

    async def serve(stream: SocketStream) -> None:
        connection = Connection(stream, upstream.connections)
        upstream.connections += 1
        upstream.opened += 1
        try:
            with suppress(*GONE):
                async with stream:
                    await script(connection)
        finally:
            upstream.opened -= 1

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield upstream
        group.cancel_scope.cancel()


def script(answer: Callable[[Connection, Received], Awaitable[None]]) -> Script:
    """Return what answers each request of a connection that is kept."""

    async def serve(connection: Connection) -> None:
        while True:
            await answer(connection, await connection.request())

    return serve


def event_of(event: Any) -> bytes:
    return b"data: %b\n\n" % json.dumps(event, ensure_ascii=False).encode()


def piece(*token_ids: int, index: int = 0, finish: str | None = None, **others: Any) -> dict[str, Any]:
    """A chunk with one choice."""
    choice = {"index": index, "token_ids": list(token_ids), "finish_reason": finish, **others}
    return {"request_id": "r", "choices": [choice]}


def unused_url() -> str:
    """Return the URL of a port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"
