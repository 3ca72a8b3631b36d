"""Clients that hang up: their work stops, wherever it is, and the next request is served as before."""

import random
import socket
import threading
import time
from collections.abc import Callable

import h2.config
import h2.connection
import pytest
from served.conftest import OpenServer
from served.long_work import DERENDER, RENDER, SMALL_RENDER, derender_body, derender_request
from served.metrics import borrowed, running, until, waiting
from served.server import Server, request_bytes

BACKENDS = ["thread", "process"]
GONE_WITHIN_S = {"thread": 1.0, "process": 1.5}


@pytest.fixture(params=BACKENDS)
def server(request: pytest.FixtureRequest, open_server: OpenServer) -> Server:
    """Limits of one, so that a second request waits. A process's spare may be needed: wait for it."""
    return open_server(
        "smollm2", "--offload", request.param, "--limit-derender", "1", "--processes", "1", "--limit-gil", "1"
    )


def backend_of(server: Server) -> str:
    return "process" if "offload process" in server.ready_line else "thread"


def assert_idle(server: Server) -> None:
    until(lambda: not any(borrowed(server).values()), GONE_WITHIN_S[backend_of(server)])


def assert_serves(server: Server) -> None:
    assert server.post(RENDER, SMALL_RENDER).status == 200
    assert server.post(DERENDER, derender_body(50, 5)).status == 200


def test_while_it_runs(server: Server) -> None:
    with server.raw() as client:
        client.sendall(derender_request())
        until(lambda: running(server) == 1, 10)
    assert_idle(server)
    assert_serves(server)


def test_while_it_runs_with_the_next_request_already_sent(server: Server) -> None:
    """hypercorn has stopped reading such a connection, and would not notice."""
    with server.raw() as client:
        client.sendall(derender_request() + request_bytes(RENDER, b'{"messages": []}'))
        until(lambda: running(server) == 1, 10)
    assert_idle(server)
    assert_serves(server)


def test_while_it_waits(server: Server) -> None:
    with server.raw() as first, server.raw() as second:
        first.sendall(derender_request())
        until(lambda: running(server) == 1, 10)
        second.sendall(derender_request())
        until(lambda: waiting(server) == 1, 10)
        second.close()
        until(lambda: waiting(server) == 0, 1)
    assert_idle(server)
    assert_serves(server)


def test_while_it_uploads(server: Server) -> None:
    request = derender_request()
    for sent in (100, 70_000, len(request) // 2):
        with server.raw() as client:
            client.sendall(request[:sent])
    assert_serves(server)
    assert_idle(server)


def test_over_http_2(server: Server) -> None:
    """A reset stream, and a connection that ends."""
    for end in ("reset", "close"):
        with server.raw() as sock:
            _send_over_h2(sock, derender_body(4000, 20), end, lambda: until(lambda: running(server) == 1, 10))
        assert_idle(server)
    assert_serves(server)


def _send_over_h2(sock: socket.socket, body: bytes, end: str, until_running: Callable[[], object]) -> None:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    headers = [(":method", "POST"), (":scheme", "http"), (":authority", "test"), (":path", DERENDER)]
    connection.send_headers(1, [*headers, ("content-type", "application/json")])
    sock.sendall(connection.data_to_send())
    view = memoryview(body)
    while view:
        size = min(connection.local_flow_control_window(1), connection.max_outbound_frame_size, len(view))
        if size == 0:
            connection.receive_data(sock.recv(65536))
            continue
        connection.send_data(1, view[:size], end_stream=size == len(view))
        view = view[size:]
        sock.sendall(connection.data_to_send())
    until_running()
    if end == "reset":
        connection.reset_stream(1)
        sock.sendall(connection.data_to_send())
        time.sleep(0.3)


def test_a_storm(server: Server) -> None:
    """200 clients hang up at random: while they upload, wait, and run."""
    rng = random.Random(1)
    request = derender_request(4000, 5)
    moments = {"uploading": 0, "sent": 0}

    def client(delay_s: float, share: float) -> None:
        with server.raw() as sock:
            sock.sendall(request[: int(len(request) * share)])
            moments["uploading" if share < 1 else "sent"] += 1
            if share == 1:
                time.sleep(delay_s)

    clients = [
        threading.Thread(target=client, args=(rng.random() * 2, rng.choice([rng.random(), 1, 1])))
        for _ in range(200)
    ]
    for thread in clients:
        thread.start()
        time.sleep(0.005)
    for thread in clients:
        thread.join()
    assert moments["uploading"] >= 20
    assert moments["sent"] >= 40
    until(lambda: not any(borrowed(server).values()) and waiting(server) == 0, 3)
    assert_serves(server)
    server.assert_quiet()
