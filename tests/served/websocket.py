"""The smallest WebSocket client: a blocking socket and wsproto."""

import json
import socket
from typing import Any, Self

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.extensions import PerMessageDeflate


class Closed(Exception):
    """The server has closed the socket. ``args``: its code."""


class WebSocket:
    """A connection that speaks JSON. Offers compression, as browsers do."""

    def __init__(self, port: int, path: str, timeout: float = 30) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self._events: list[Any] = []
        self._text = ""
        self.ws = WSConnection(ConnectionType.CLIENT)
        self.socket.sendall(self.ws.send(Request(host="test", target=path, extensions=[PerMessageDeflate()])))
        answer = self._next()
        if isinstance(answer, RejectConnection):
            self.socket.close()
            raise ConnectionRefusedError(answer.status_code)
        assert isinstance(answer, AcceptConnection), answer
        self.extensions = answer.extensions

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def send(self, value: object) -> None:
        """Send JSON as text; text and bytes go as they are."""
        if isinstance(value, bytes):
            self.socket.sendall(self.ws.send(BytesMessage(value)))
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            self.socket.sendall(self.ws.send(TextMessage(text)))

    def receive(self) -> Any:
        """The next message. Raises `Closed` where there is none."""
        while True:
            event = self._next()
            if isinstance(event, CloseConnection):
                raise Closed(event.code)
            if isinstance(event, Message):
                self._text += event.data
                if event.message_finished:
                    text, self._text = self._text, ""
                    return json.loads(text)

    def ask(self, value: object) -> Any:
        """Send, and return the answer."""
        self.send(value)
        return self.receive()

    def close_code(self) -> int:
        """Wait for the server's close, and return its code."""
        try:
            raise AssertionError(f"not closed, but {self.receive()!r}")
        except Closed as closed:
            code: int = closed.args[0]
            return code

    def close(self) -> None:
        """End the stream as a client does."""
        self.socket.sendall(self.ws.send(CloseConnection(1000)))

    def _next(self) -> Any:
        while not self._events:
            data = self.socket.recv(65536)
            if not data:
                raise Closed(None)
            self.ws.receive_data(data)
            self._events += self.ws.events()
        return self._events.pop(0)
