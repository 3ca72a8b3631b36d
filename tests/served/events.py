"""Reads server-sent events off a socket, one at a time."""

import json
import socket
from typing import Any, Self

from served.server import Server, lower_case, payload, request_bytes

DONE = "[DONE]"


class EventSource:
    """A streamed answer. Leaving the block closes its connection, wherever the answer is."""

    def __init__(self, server: Server, path: str, body: object, *headers: str) -> None:
        self._socket = server.raw(timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        self.status = 0
        self.headers: dict[str, str] = {}
        self.send(path, body, *headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, path: str, body: object, *headers: str) -> None:
        """Send a request, the first or a further one."""
        self._socket.sendall(request_bytes(path, payload(body), *headers))

    def next_answer(self) -> None:
        """Go on to the answer behind one that was read to its end."""
        self.status = 0

    def read_head(self) -> int:
        """Read status and headers, which come with the first event."""
        self.status = int(self._file.readline().split()[1])
        lines = iter(self._file.readline, b"\r\n")
        self.headers = lower_case(line.decode().strip().split(": ", 1) for line in lines)  # type: ignore[misc]
        return self.status

    def next(self) -> str:
        """Return the next event's data; "" at the end of the body."""
        if not self.status:
            assert self.read_head() == 200, self._file.read(1000)
        size = int(self._file.readline(), 16)
        data = self._file.read(size + 2)[:-2].decode()
        if not data:
            return ""
        assert data.startswith("data: "), data
        assert data.endswith("\n\n"), data
        return data.removeprefix("data: ").removesuffix("\n\n")

    def chunks(self) -> list[dict[str, Any]]:
        """Read to the end, which must be `DONE`, and return the chunks before it."""
        seen = []
        while (data := self.next()) != DONE:
            assert data, "the stream ended without its last event"
            seen += [json.loads(part) for part in data.split("\n\ndata: ") if part != DONE]
            if data.endswith(DONE):
                break
        assert self.next() == ""
        return seen


def streamed(server: Server, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a whole stream."""
    with EventSource(server, path, {**body, "stream": True}) as events:
        chunks = events.chunks()
        assert events.status == 200, chunks
        return chunks
