"""Connections that are idle, told to close, or stuck: none is held, and none holds the shutdown."""

import json
import signal
import socket
import time
from pathlib import Path

import pytest
from served.long_work import derender_request
from served.metrics import running, until
from served.server import exchange, is_closed_by_peer, read_raw_reply, request_bytes, serve

HEALTH = b"GET /health HTTP/1.1\r\nHost: test\r\n\r\n"
KEEP_ALIVE_S = 8
ORDER = range(1, 30)


@pytest.mark.slow
def test_idle_connections_are_closed_after_the_keep_alive_time(model_folders: Path, log: Path) -> None:
    with serve(model_folders / "smollm2", log=log) as server:
        idle = []
        for _ in range(40):
            client = server.raw(timeout=KEEP_ALIVE_S + 5)
            client.sendall(HEALTH)
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
            idle.append(client)
        assert sum(map(is_closed_by_peer, idle)) == 40
        for client in idle:
            client.close()


def test_connection_close_is_honoured(model_folders: Path, log: Path) -> None:
    with serve(model_folders / "smollm2", log=log) as server:
        for _ in range(40):
            with server.raw(timeout=3) as client:
                client.sendall(b"GET /health HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
                data = b""
                while chunk := client.recv(65536):
                    data += chunk
                assert data.startswith(b"HTTP/1.1 200")


def test_idle_connections_do_not_hold_the_shutdown(model_folders: Path, log: Path) -> None:
    with serve(model_folders / "smollm2", log=log) as server:
        connections = [server.connect() for _ in range(10)]
        assert all(exchange(c, "GET", "/health", headers={}).status == 200 for c in connections)
        server.stop()
        began = time.perf_counter()
        assert server.process.wait(10) == 0
        assert time.perf_counter() - began < 1
        for connection in connections:
            connection.close()


def test_a_client_that_never_reads_is_given_up(model_folders: Path, log: Path) -> None:
    options = ("--write-timeout", "0.5", "--graceful-timeout", "1", "--offload", "thread")
    with serve(model_folders / "smollm2", *options, log=log) as server:

        def stuck() -> socket.socket:
            client = server.raw()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(derender_request(4000, 20))
            until(lambda: running(server) == 1, 10)
            return client

        # Its answer is under way and nobody reads it: the server closes in the end.
        with stuck() as client:
            until(lambda: running(server) == 0, 10)
            time.sleep(1.5)
            client.settimeout(5)
            received = 0
            try:
                while chunk := client.recv(1 << 20):
                    received += len(chunk)
            except ConnectionResetError:
                pass
            assert received < 5_000_000

        with stuck():
            until(lambda: running(server) == 0, 10)
            server.stop()
            began = time.perf_counter()
            assert server.process.wait(15) == 0
            assert time.perf_counter() - began < 3


@pytest.mark.slow
def test_a_request_that_comes_in_time_is_answered_though_the_loop_is_late(
    model_folders: Path, log: Path
) -> None:
    """It lies unread while the keep-alive time ends: the server has been stopped over that moment."""
    with serve(model_folders / "smollm2", log=log) as server, server.raw(timeout=10) as client:
        client.sendall(HEALTH)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        time.sleep(KEEP_ALIVE_S - 1)
        server.process.send_signal(signal.SIGSTOP)
        client.sendall(HEALTH)
        time.sleep(1.5)
        server.process.send_signal(signal.SIGCONT)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_connection_serves_any_number_of_requests(model_folders: Path, log: Path) -> None:
    with serve(model_folders / "smollm2", log=log) as server, server.raw() as client:
        for _ in range(1100):
            client.sendall(HEALTH)
            head = client.recv(65536)
            assert head.startswith(b"HTTP/1.1 200")
            assert b"close" not in head.lower()


def test_a_large_body_and_a_large_answer_arrive_whole(model_folders: Path, log: Path) -> None:
    """Several megabytes each way, with a reader that is slow, and the next request behind them."""
    ids = [index % 40_000 for index in range(400_000)]
    body = json.dumps({"tokens": ids}).encode()
    with serve(model_folders / "smollm2", log=log) as server, server.raw() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.sendall(request_bytes("/detokenize", body))
        time.sleep(1)
        text = read_raw_reply(client).json["prompt"]
        assert server.post("/detokenize", body).json["prompt"] == text
        assert len(text) > 1_000_000
        client.sendall(HEALTH)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_pipeline_is_answered_in_order(model_folders: Path, log: Path) -> None:
    with serve(model_folders / "smollm2", log=log) as server, server.raw() as client:
        client.sendall(b"".join(request_bytes("/tokenize", b'{"prompt": "%s"}' % (b"a " * n)) for n in ORDER))
        counts = [read_raw_reply(client).json["count"] for _ in ORDER]
        assert counts == sorted(counts)
        assert len(set(counts)) == len(ORDER)
