"""Clients that hang up leave nothing behind: no work, no connection, no noise."""

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from served.server import Server, read_exactly, request_bytes, serve

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

DERENDER_CHAT = "/v1/chat/completions/derender"
N_TOKENS = 5000
N_CLIENTS = 20
SETTLE_S = 3
"""More than any cleaning up takes, less than hypercorn's keep-alive time."""


@pytest.fixture(scope="module")
def narrow(model_folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one thread for each kind of work, so that what is left running shows."""
    log = tmp_path_factory.mktemp("narrow") / "server.log"
    options = ("--limit-render", "1", "--limit-derender", "1", "--max-body", "8M")
    with serve(model_folders / "smollm2", *options, log=log, stop_within_s=SETTLE_S) as server:
        yield server


def long_derender() -> bytes:
    ids = [200 + i % 40_000 for i in range(N_TOKENS)]
    content = [
        {
            "token_id": id_,
            "logprob": -0.5,
            "top_logprobs": [{"token_id": id_ + j, "logprob": -1.0 - j} for j in range(20)],
        }
        for id_ in ids
    ]
    choice = {"index": 0, "token_ids": ids, "logprobs": {"content": content}}
    asked = {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "top_logprobs": 20}
    return json.dumps(
        {"generate_response": {"request_id": "r", "choices": [choice]}, "chat_request": asked}
    ).encode()


def long_render() -> bytes:
    return json.dumps({"prompt": [f"{i} " + "A quick brown fox. " * 100 for i in range(1000)]}).encode()


LONG: dict[str, tuple[str, Callable[[], bytes]]] = {
    "derender": (DERENDER_CHAT, long_derender),
    "render": ("/v1/completions/render", long_render),
    "tokenize": ("/tokenize", lambda: json.dumps({"prompt": "A quick brown fox. " * 20_000}).encode()),
}


def reset(connection: socket.socket) -> None:
    """Close so that the peer gets RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def half_close(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)
    with suppress(ConnectionResetError):
        while connection.recv(65536):
            pass
    connection.close()


HANG_UPS = [socket.socket.close, reset, half_close]


def n_sockets(server: Server) -> int:
    count = 0
    for link in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += os.readlink(link).startswith("socket:")
    return count


def cpu_s(server: Server) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until_let_go(server: Server, n_before: int) -> None:
    """Wait until the server holds no more connections than before."""
    deadline = time.monotonic() + SETTLE_S
    while n_sockets(server) > n_before:
        assert time.monotonic() < deadline, f"{n_sockets(server) - n_before} connections are left"
        time.sleep(0.01)


def check_answers(server: Server) -> None:
    """One good answer of each kind of work: no thread is taken for good."""
    assert server.post("/tokenize", {"prompt": "Hello world"}).json["tokens"] == [19556, 905]
    assert server.post("/detokenize", {"tokens": [19556, 905]}).json["prompt"] == "Hello world"
    server.assert_quiet()


@pytest.mark.parametrize("hang_up", HANG_UPS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("part", ["headers", "half a body", "all", "all, and reads a byte"])
def test_hanging_up(part: str, kind: str, hang_up: Callable[[socket.socket], None], narrow: Server) -> None:
    path, make_body = LONG[kind]
    body = make_body()
    whole = request_bytes(path, body)
    sent = {"headers": whole[: -len(body)], "half a body": whole[: -len(body) // 2]}.get(part, whole)
    before = n_sockets(narrow)
    for _ in range(N_CLIENTS if part != "all, and reads a byte" else 3):
        with narrow.raw() as connection:
            connection.sendall(sent)
            if part.endswith("a byte"):
                read_exactly(connection, 1)
            hang_up(connection)
    check_answers(narrow)
    wait_until_let_go(narrow, before)


def test_abandoned_work_is_not_done(narrow: Server) -> None:
    """Twenty clients that hang up cost far less than twenty answers."""
    body = long_derender()
    start = cpu_s(narrow)
    for _ in range(3):
        assert narrow.post(DERENDER_CHAT, body).status == 200
    one = (cpu_s(narrow) - start) / 3
    start = cpu_s(narrow)
    for _ in range(20):
        with narrow.raw() as connection:
            connection.sendall(request_bytes(DERENDER_CHAT, body))
            reset(connection)
    check_answers(narrow)
    assert cpu_s(narrow) - start < 20 * one * 0.7


@pytest.mark.parametrize("hang_up", HANG_UPS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", LONG)
def test_hanging_up_with_a_second_request_in_the_pipe(
    kind: str, hang_up: Callable[[socket.socket], None], narrow: Server
) -> None:
    path, make_body = LONG[kind]
    body = make_body()
    before = n_sockets(narrow)
    for _ in range(5):
        with narrow.raw() as connection:
            connection.sendall(request_bytes(path, body) + request_bytes("/tokenize", b'{"prompt": "x"}'))
            hang_up(connection)
    check_answers(narrow)
    wait_until_let_go(narrow, before)


def test_a_connection_that_ends_is_let_go_at_once(narrow: Server) -> None:
    """Otherwise clients that connect for each request use up the file descriptors."""
    before = n_sockets(narrow)
    for _ in range(50):
        assert narrow.get("/health").status == 200
        narrow.raw().close()
    wait_until_let_go(narrow, before)


def test_hanging_up_on_a_refusal(narrow: Server) -> None:
    """The answer is on its way while the client goes: no noise in the log."""
    refused = request_bytes("/tokenize", b'{"prompt": ', length=10**9)
    for hang_up in (socket.socket.close, reset):
        for _ in range(200):
            with narrow.raw() as connection:
                connection.sendall(refused)
                hang_up(connection)
    check_answers(narrow)


def test_a_client_that_reads_nothing_does_not_delay_the_end(model_folders: Path, log: Path) -> None:
    options = ("--graceful-timeout", "0.5", "--max-model-len", "10000000")
    with serve(model_folders / "smollm2", *options, log=log, stop_within_s=SETTLE_S) as server:
        body = json.dumps({"prompt": "A quick brown fox. " * 200_000}).encode()
        connection = server.raw()
        connection.sendall(request_bytes("/tokenize", body))
        read_exactly(connection, 1)
        server.stop()
        assert server.process.wait(SETTLE_S) == 0
    connection.close()
