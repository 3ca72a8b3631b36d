"""Bodies that are too large, too slow, or not framed as they say."""

import pytest
from served.conftest import OpenServer
from served.server import Server, is_closed_by_peer, read_raw_reply, request_bytes
from served.test_bad_input import check_answers, check_error

LIMIT = 1024 * 1024
PATH = "/tokenize"


@pytest.fixture
def strict(open_server: OpenServer) -> Server:
    """A server with tight bounds on bodies."""
    return open_server("smollm2", "--max-body", "1M", "--body-timeout", "1")


def padded(size: int) -> bytes:
    """A good body of exactly ``size`` bytes."""
    body = b'{"prompt": "Hello world"}'
    return body + b" " * (size - len(body))


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)


def check_refused(server: Server, data: bytes, status: int) -> None:
    """The answer to ``data``, after which the server must close: the rest would be taken for a request."""
    with server.raw() as connection:
        connection.sendall(data)
        reply = read_raw_reply(connection)
        check_error(reply, status)
        assert reply.closes
        assert is_closed_by_peer(connection)
    check_answers(server)
    server.assert_quiet()


def test_a_body_at_the_limit_is_read(strict: Server) -> None:
    check_answers(strict, strict.post(PATH, padded(LIMIT)))
    with strict.raw() as connection:
        half = padded(LIMIT)[: LIMIT // 2], padded(LIMIT)[LIMIT // 2 :]
        connection.sendall(request_bytes(PATH, b"", "Transfer-Encoding: chunked", length=""))
        connection.sendall(chunked(*half) + b"0\r\n\r\n")
        check_answers(strict, read_raw_reply(connection))


@pytest.mark.parametrize("length", [LIMIT + 1, 10**10, 2**63, 10**19])
def test_a_body_that_is_declared_too_large(strict: Server, length: int) -> None:
    check_refused(strict, request_bytes(PATH, b"", length=length), 413)


def test_a_chunked_body_that_grows_too_large(strict: Server) -> None:
    head = request_bytes(PATH, b"", "Transfer-Encoding: chunked", length="")
    check_refused(strict, head + chunked(b" " * LIMIT, b" "), 413)


@pytest.mark.parametrize("part", [b"", b'{"prompt":'])
def test_a_body_that_does_not_arrive(strict: Server, part: bytes) -> None:
    check_refused(strict, request_bytes(PATH, part, length=100), 408)


def test_a_chunked_body_that_does_not_end(strict: Server) -> None:
    head = request_bytes(PATH, b"", "Transfer-Encoding: chunked", length="")
    check_refused(strict, head + chunked(padded(50)), 408)


@pytest.mark.parametrize("path", ["/nope", pytest.param("/health", marks=pytest.mark.slow)])
def test_an_answer_without_reading_the_body(strict: Server, path: str) -> None:
    """Whoever answers early says that the connection ends, or keeps it fit for the next request."""
    with strict.raw() as connection:
        connection.sendall(request_bytes(path, b"", length=2))
        reply = read_raw_reply(connection)
        check_error(reply, 404 if path == "/nope" else 405)
        check_answers(strict)
        if reply.closes:
            assert is_closed_by_peer(connection)
        else:
            connection.sendall(b"{}" + request_bytes(PATH, padded(25)))
            check_answers(strict, read_raw_reply(connection))
    strict.assert_quiet()


def test_the_rest_of_a_body_is_not_a_part_of_it(strict: Server) -> None:
    """A Content-Length below the body's: a bad body, and then a bad request."""
    with strict.raw() as connection:
        connection.sendall(request_bytes(PATH, b'{"prompt": "Hello world"}\r\n\r\n', length=8))
        check_error(read_raw_reply(connection), 400)
        after = read_raw_reply(connection)
        assert (after.status, after.closes) == (400, True)
        assert is_closed_by_peer(connection)
    check_answers(strict)
    strict.assert_quiet()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request_bytes(PATH, padded(25), length=-1), 400),
        (request_bytes(PATH, padded(25), length="9" * 28), 400),
        (request_bytes(PATH, padded(25), length="9" * 4000), 400),
        (request_bytes(PATH, padded(25), length="abc"), 400),
        (request_bytes(PATH, padded(25), length="0x19"), 400),
        (request_bytes(PATH, padded(25), "Content-Length: 24"), 400),
        (request_bytes(PATH, b"zz\r\n{}\r\n", "Transfer-Encoding: chunked", length=""), 400),
        (request_bytes(PATH, b"", "Transfer-Encoding: gzip", length=""), 501),
        (request_bytes(PATH, b"", "X-Large: " + "x" * 70_000), 431),
        (request_bytes(PATH, b"", "Bad Name: x"), 400),
        (b"POST /tokenize HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: test\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    ],
)
def test_what_is_not_http(strict: Server, data: bytes, status: int) -> None:
    """hypercorn's own answer, without a body; the connection ends and the server goes on."""
    with strict.raw() as connection:
        connection.sendall(data)
        reply = read_raw_reply(connection)
        assert (reply.status, reply.closes, reply.body) == (status, True, b"")
        assert is_closed_by_peer(connection)
    check_answers(strict)
    strict.assert_quiet()
