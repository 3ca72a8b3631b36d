"""How the server starts, keeps and closes connections, and stops."""

import signal
import socket
import time
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

import pytest
from served.server import (
    READY,
    Server,
    exchange,
    is_closed_by_peer,
    payload,
    read_exactly,
    read_raw_reply,
    request_bytes,
    serve,
)

KEEP_ALIVE_S = 5
"""hypercorn's own; not a setting of ours."""

QUICK_S = 3
"""Far below both the keep-alive time and the graceful timeout."""

PROMPT = payload({"prompt": "Hello world"})


def test_ready_line(server: Server) -> None:
    match = READY.match(server.ready_line)
    assert match
    assert match[2] == "m"
    for fact in ("vocabulary 49152", "context 8192", "render 2", "derender 2"):
        assert fact in server.ready_line
    assert server.get("/health").status == 200


@pytest.mark.parametrize("stop_by", [signal.SIGTERM, signal.SIGINT])
def test_idle_connections_do_not_delay_the_end(
    stop_by: signal.Signals, model_folders: Path, log: Path
) -> None:
    with (
        ExitStack() as connections,
        serve(model_folders / "smollm2", log=log, stop_by=stop_by, stop_within_s=QUICK_S) as server,
    ):
        for used in (True, False) * 5:
            connection = server.connect()
            connections.callback(connection.close)
            connection.connect()
            if used:
                assert exchange(connection, "POST", "/tokenize", PROMPT).status == 200


@pytest.mark.parametrize("stop_by", [signal.SIGTERM, signal.SIGINT])
def test_a_server_without_connections_ends_at_once(
    stop_by: signal.Signals, model_folders: Path, log: Path
) -> None:
    with serve(model_folders / "smollm2", log=log, stop_by=stop_by, stop_within_s=QUICK_S):
        pass
    assert "Stopped." in log.read_text()


def wait_until_it_refuses(port: int) -> None:
    """Wait until a new connection is refused: the server has seen the signal."""
    deadline = time.monotonic() + QUICK_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=QUICK_S).close()
        except OSError:
            return
    raise AssertionError("the server still accepts connections")


def test_running_requests_are_answered_at_the_end(model_folders: Path, log: Path) -> None:
    with (
        ExitStack() as connections,
        serve(model_folders / "smollm2", log=log, stop_within_s=QUICK_S) as server,
    ):
        running = [connections.enter_context(server.raw()) for _ in range(5)]
        for connection in running:
            connection.sendall(request_bytes("/tokenize", b"", "Expect: 100-continue", length=len(PROMPT)))
            interim = read_exactly(connection, 16)
            assert interim.startswith(b"HTTP/1.1 100"), "the server has not begun with this request"
            while not interim.endswith(b"\r\n\r\n"):
                interim += read_exactly(connection, 1)
        server.stop()
        wait_until_it_refuses(server.port)
        for connection in running:
            connection.sendall(PROMPT)
            assert read_raw_reply(connection).json["tokens"] == [19556, 905]


def test_what_outlives_the_graceful_timeout_is_cut_off(model_folders: Path, log: Path) -> None:
    with serve(
        model_folders / "smollm2", "--graceful-timeout", "0.5", log=log, stop_within_s=QUICK_S
    ) as server:
        connection = server.raw()
        connection.sendall(request_bytes("/tokenize", b"", "Expect: 100-continue", length=100))
        read_exactly(connection, 16)
    connection.close()


def test_an_idle_connection_is_closed_after_a_while(server: Server) -> None:
    with server.raw(timeout=4 * KEEP_ALIVE_S) as unused, server.raw(timeout=4 * KEEP_ALIVE_S) as used:
        used.sendall(request_bytes("/tokenize", PROMPT))
        assert read_raw_reply(used).status == 200
        since = time.monotonic()
        assert is_closed_by_peer(used)
        assert is_closed_by_peer(unused)
        assert KEEP_ALIVE_S * 0.8 < time.monotonic() - since < KEEP_ALIVE_S * 1.8


def test_a_connection_serves_many_requests(server: Server) -> None:
    connection = server.connect()
    replies = [exchange(connection, "POST", "/tokenize", PROMPT)]
    first = local_port(connection)
    replies += [exchange(connection, "POST", "/tokenize", PROMPT) for _ in range(20)]
    assert local_port(connection) == first
    connection.close()
    assert {reply.status for reply in replies} == {200}
    assert not any(reply.closes for reply in replies)


def local_port(connection: HTTPConnection) -> int:
    port: int = connection.sock.getsockname()[1]
    return port


def test_requests_may_be_pipelined(server: Server) -> None:
    with server.raw() as connection:
        connection.sendall(request_bytes("/tokenize", PROMPT) * 3)
        assert [read_raw_reply(connection).json["count"] for _ in range(3)] == [2, 2, 2]


def test_connection_close_is_honoured(server: Server) -> None:
    for data in (
        request_bytes("/tokenize", PROMPT, "Connection: close"),
        request_bytes("/tokenize", PROMPT).replace(b"HTTP/1.1", b"HTTP/1.0"),
    ):
        with server.raw() as connection:
            connection.sendall(data)
            since = time.monotonic()
            reply = read_raw_reply(connection)
            assert reply.status == 200
            assert is_closed_by_peer(connection)
            assert time.monotonic() - since < KEEP_ALIVE_S * 0.5
