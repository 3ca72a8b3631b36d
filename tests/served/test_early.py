"""What is answered before Quart is answered as Quart would: refusals with any kind of body, health checks."""

import time
from collections.abc import Iterator

import h2.config
import h2.connection
import h2.events
import pytest
from served.conftest import OpenServer
from served.long_work import ANY_LENGTH, DERENDER, derender_request
from served.metrics import figures, running, until
from served.server import Reply, Server, is_closed_by_peer, read_raw_reply, request_bytes

PATH = "/detokenize"
HEALTH = b"GET /health HTTP/1.1\r\nHost: test\r\n\r\n"
MIB = 1024 * 1024


@pytest.fixture
def full(open_server: OpenServer) -> Iterator[Server]:
    """A server that has no room for another derender, for as long as the test runs."""
    options = ("--limit-derender", "1", "--queue-limit", "0", "--offload", "process", "--processes", "1")
    server = open_server("smollm2", *options, *ANY_LENGTH)
    until(lambda: figures(server)['trio_render_processes{state="idle"}'] == 2, 20)
    with server.raw() as busy:
        busy.sendall(derender_request(20_000, 20))
        until(lambda: running(server) == 1, 30)
        yield server
    until(lambda: running(server) == 0, 5)
    server.assert_quiet()


def check_refusal(reply: Reply, closes: bool = False) -> None:
    assert (reply.status, reply.json["error"]["type"]) == (503, "overloaded")
    assert reply.headers["content-type"] == "application/json"
    assert 1 <= int(reply.headers["retry-after"]) <= 3
    assert reply.closes == closes


def test_a_refusal_leaves_its_connection_to_the_next_request(full: Server) -> None:
    before = figures(full)
    bodies = [
        request_bytes(PATH, b""),
        request_bytes(PATH, b"", length=""),
        request_bytes(PATH, b"{}"),
        request_bytes(PATH, b" " * MIB),
        request_bytes(PATH, b"2\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked", length=""),
    ]
    with full.raw() as client:
        for request in bodies:
            client.sendall(request + HEALTH)
            check_refusal(read_raw_reply(client))
            assert read_raw_reply(client).status == 200
    after = figures(full)
    for series in (
        'trio_render_requests_total{route="/detokenize",status="503"}',
        'trio_render_requests_total{route="/health",status="200"}',
        'trio_render_jobs_total{kind="derender",outcome="refused"}',
    ):
        assert after[series] - before.get(series, 0) == len(bodies), series


def test_a_body_in_two_parts(full: Server) -> None:
    with full.raw() as client:
        client.sendall(request_bytes(PATH, b"{", length=2))
        time.sleep(0.1)
        client.sendall(b"}" + HEALTH)
        check_refusal(read_raw_reply(client))
        assert read_raw_reply(client).status == 200


def test_a_client_that_waits_to_be_told_to_go_on(full: Server) -> None:
    with full.raw() as client:
        client.sendall(request_bytes(PATH, b"", "Expect: 100-continue", length=2))
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1)
        assert head.startswith(b"HTTP/1.1 100 ")
        client.sendall(b"{}")
        check_refusal(read_raw_reply(client))


@pytest.mark.parametrize("path", [PATH, "/ping"])
def test_a_body_that_is_too_large_to_be_forgotten(full: Server, path: str) -> None:
    with full.raw() as client:
        client.sendall(request_bytes(path, b" " * (16 * MIB + 1), length=100 * MIB))
        reply = read_raw_reply(client)
        assert reply.closes
        assert reply.status == (503 if path == PATH else 200)
        assert is_closed_by_peer(client)


def test_a_body_that_does_not_come(full: Server) -> None:
    with full.raw() as client:
        client.sendall(request_bytes(PATH, b"{", length=2))
        check_refusal(read_raw_reply(client), closes=True)
        assert is_closed_by_peer(client)


def test_a_client_that_goes_on_sending_has_its_answer(full: Server) -> None:
    """More lies unread than the server may keep while it answers."""
    with full.raw() as client:
        client.sendall(request_bytes(PATH, b" " * 20 * MIB, length=21 * MIB))
        check_refusal(read_raw_reply(client), closes=True)


def test_a_framing_error_in_the_body(full: Server) -> None:
    with full.raw() as client:
        client.sendall(request_bytes(PATH, b"zz\r\n", "Transfer-Encoding: chunked", length=""))
        assert read_raw_reply(client).status == 400
        assert is_closed_by_peer(client)


def test_clients_that_hang_up(full: Server) -> None:
    for sent in (1, 10, 1000, 300_000):
        with full.raw() as client:
            client.sendall(request_bytes(PATH, b" " * MIB)[:-sent])
    assert full.get("/health").status == 200


def test_what_is_no_such_request(full: Server) -> None:
    """Other methods and paths are told the same as ever, and what needs no room is served."""
    for path in ("/v1/chat/completions/render", DERENDER, "/tokenize", PATH):
        for method in ("GET", "PUT", "HEAD"):
            refused = full.request(method, path)
            assert (refused.status, refused.headers["allow"]) == (405, "OPTIONS, POST")
        allowed = full.request("OPTIONS", path)
        assert (allowed.status, allowed.headers["allow"], allowed.body) == (200, "OPTIONS, POST", b"")
    assert full.request("GET", PATH).json["error"]["code"] == 405
    assert full.post("/nope", {}).status == 404
    assert full.post("/health", {}).status == 405
    head = full.request("HEAD", "/health")
    assert (head.status, head.headers["content-length"], head.body) == (200, "0", b"")
    assert full.post("/tokenize", {"prompt": "Hello world"}).json["count"] == 2


def test_over_http_2(full: Server) -> None:
    requests = [("GET", "/health", b""), ("POST", DERENDER, b"{}"), ("POST", "/ping", b"{}")]
    connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    connection.initiate_connection()
    for stream_id, (method, path, body) in zip((1, 3, 5), requests, strict=True):
        headers = [(":method", method), (":scheme", "http"), (":authority", "test"), (":path", path)]
        connection.send_headers(stream_id, headers, end_stream=not body)
        if body:
            connection.send_data(stream_id, body, end_stream=True)
    statuses: dict[int, str] = {}
    with full.raw(timeout=10) as client:
        ended = 0
        while ended < len(requests):
            client.sendall(connection.data_to_send())
            for event in connection.receive_data(client.recv(65536)):
                if isinstance(event, h2.events.ResponseReceived):
                    statuses[event.stream_id] = dict(event.headers)[":status"]
                ended += isinstance(event, h2.events.StreamEnded)
    assert statuses == {1: "200", 3: "503", 5: "200"}
