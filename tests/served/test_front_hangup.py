"""Clients that hang up: the engine stops within a token, and the next request is served at once.

connect-py#174, daf_butler#1407, lmstudio-bug-tracker#1994, vllm#25697, ATOM#1562.
"""

import json
import socket
import time
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest
from served.events import EventSource
from served.metrics import borrowed, running, until, waiting
from served.proc import reads_proc, threads
from served.server import Server, payload, request_bytes
from served.test_front_events import ALL, BODIES, COMPLETION, LONG

STOPS_WITHIN_S = 1.0


def assert_idle(server: Server) -> None:
    until(lambda: not any(borrowed(server).values()), STOPS_WITHIN_S)


@ALL
def test_after_each_event(tiny: Server, path: str) -> None:
    body = {**LONG[path], "stream": True}
    for k in range(1, 21):
        with EventSource(tiny, path, body) as events:
            for _ in range(k):
                events.next()
            assert running(tiny, "engine") == 1
        until(lambda: running(tiny, "engine") == 0, STOPS_WITHIN_S)
    assert_idle(tiny)
    assert tiny.post(path, BODIES[path]).status == 200


@ALL
@pytest.mark.parametrize("stream", [True, False])
def test_before_anything_has_come(tiny: Server, path: str, stream: bool) -> None:
    request = request_bytes(path, payload({**LONG[path], "stream": stream}))
    for delay in (0.0, 0.001, 0.01, 0.05):
        with tiny.raw() as client:
            client.sendall(request)
            time.sleep(delay)
        assert_idle(tiny)
    with tiny.raw() as client:
        client.sendall(request)
        until(lambda: running(tiny, "engine") == 1, 5)
    assert_idle(tiny)
    assert tiny.post(path, BODIES[path]).status == 200


@ALL
@pytest.mark.parametrize("stream", [True, False])
def test_in_the_queue(tiny: Server, path: str, stream: bool) -> None:
    request = request_bytes(path, payload({**LONG[path], "stream": stream}))
    with EventSource(tiny, path, {**LONG[path], "stream": True}) as busy:
        busy.next()
        with tiny.raw() as second, tiny.raw() as third:
            second.sendall(request)
            third.sendall(request)
            until(lambda: waiting(tiny, "engine") == 2, 5)
        until(lambda: waiting(tiny, "engine") == 0, STOPS_WITHIN_S)
        busy.next()
    assert_idle(tiny)


@ALL
def test_the_next_request_is_served_at_once(tiny: Server, path: str) -> None:
    for _ in range(3):
        with EventSource(tiny, path, {**LONG[path], "stream": True}) as events:
            events.next()
        since = time.monotonic()
        assert tiny.post(path, BODIES[path]).status == 200
        assert time.monotonic() - since < STOPS_WITHIN_S


@ALL
def test_with_the_next_request_already_sent(tiny: Server, path: str) -> None:
    """hypercorn has stopped reading such a connection, and would not notice."""
    with EventSource(tiny, path, {**LONG[path], "stream": True}) as events:
        events.next()
        events.send(path, BODIES[path])
        events.next()
    assert_idle(tiny)


def test_a_client_that_does_not_read(tiny: Server) -> None:
    """What is made for it is bounded, and it can still hang up."""
    body = {**LONG[COMPLETION], "stream": True, "logprobs": 5}
    with tiny.raw() as client:
        client.sendall(request_bytes(COMPLETION, payload(body)))
        until(lambda: running(tiny, "engine") == 1, 5)
        time.sleep(0.5)
    assert_idle(tiny)


def test_several_prompts_at_once(tiny: Server) -> None:
    body = {**LONG[COMPLETION], "prompt": ["a", "b", "c"], "n": 2, "temperature": 1, "stream": True}
    with EventSource(tiny, COMPLETION, body) as events:
        for _ in range(5):
            assert json.loads(events.next())["choices"]
    assert_idle(tiny)
    assert waiting(tiny, "engine") == 0


@reads_proc
def test_nothing_is_left_of_many(tiny: Server) -> None:
    """No thread that works on, no processor time."""
    for k in range(30):
        with EventSource(tiny, COMPLETION, {**LONG[COMPLETION], "stream": True}) as events:
            for _ in range(k % 4):
                events.next()
    assert_idle(tiny)
    before, used = threads(tiny), processor_ticks(tiny)
    time.sleep(0.5)
    assert processor_ticks(tiny) - used <= 5
    for _ in range(30):
        with EventSource(tiny, COMPLETION, {**LONG[COMPLETION], "stream": True}) as events:
            events.next()
    assert_idle(tiny)
    assert threads(tiny) <= before + 2


def processor_ticks(server: Server) -> int:
    """Hundredths of a second that the process has worked."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@ALL
@pytest.mark.parametrize("end", ["reset", "close"])
def test_over_http_2(tiny: Server, path: str, end: str) -> None:
    """Several streams of a connection; one that is reset, and one whose connection ends."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    head = [(":method", "POST"), (":scheme", "http"), (":authority", "test"), (":path", path)]
    with tiny.raw() as sock:
        for stream_id in (1, 3):
            connection.send_headers(stream_id, [*head, ("content-type", "application/json")])
            connection.send_data(stream_id, payload({**LONG[path], "stream": True}), end_stream=True)
            sock.sendall(connection.data_to_send())
            if stream_id == 1:
                wait_data(connection, sock)
        until(lambda: waiting(tiny, "engine") == 1, 5)
        if end == "reset":
            for stream_id in (3, 1):
                connection.reset_stream(stream_id)
            sock.sendall(connection.data_to_send())
            assert_idle(tiny)
    assert_idle(tiny)
    assert waiting(tiny, "engine") == 0


def wait_data(connection: h2.connection.H2Connection, sock: socket.socket) -> None:
    while True:
        for event in connection.receive_data(sock.recv(65536)):
            if isinstance(event, h2.events.DataReceived):
                assert event.data.startswith(b"data: ")
                return
