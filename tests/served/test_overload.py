"""More than the server can do: a clear no at once, deadlines that hold, connections that stay usable."""

import random
import threading
import time

import pytest
from served.conftest import OpenServer
from served.long_work import DERENDER, RENDER, SMALL_RENDER, derender_body
from served.metrics import figures, running, until, waiting
from served.server import JSON_TYPE, Reply, Server, exchange


@pytest.fixture
def server(open_server: OpenServer) -> Server:
    return open_server("smollm2", "--limit-derender", "1", "--queue-limit", "2", "--offload", "thread")


class Crowd:
    """Clients in threads, each with a request that keeps the worker busy."""

    def __init__(self, server: Server, n: int) -> None:
        self.replies: list[Reply] = []
        self._threads = [threading.Thread(target=self._send, args=(server,)) for _ in range(n)]
        for thread in self._threads:
            thread.start()

    def _send(self, server: Server) -> None:
        self.replies.append(server.post(DERENDER, derender_body()))

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def test_a_full_queue_is_a_503_with_retry_after_on_a_connection_that_stays(server: Server) -> None:
    """Twelve clients come at once; one is served at a time, and two may wait."""
    refused: list[Reply] = []
    statuses: list[int] = []

    def client() -> None:
        connection = server.connect()
        reply = exchange(connection, "POST", DERENDER, derender_body(4000, 5))
        statuses.append(reply.status)
        if reply.status == 503:
            refused.append(reply)
            # Its body of a megabyte was read and forgotten: the connection's next request is in place.
            statuses.append(exchange(connection, "GET", "/v1/models").status)
        connection.close()

    clients = [threading.Thread(target=client) for _ in range(12)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert refused
    for reply in refused:
        assert reply.json["error"]["type"] == "overloaded"
        assert reply.json["error"]["code"] == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert not reply.closes
    assert statuses.count(200) == 12
    assert statuses.count(503) == len(refused)
    assert figures(server)['trio_render_jobs_total{kind="derender",outcome="refused"}'] >= len(refused)


def test_clients_that_come_back_when_told_are_all_served(open_server: OpenServer) -> None:
    """16 clients on one worker and a queue of 2: 200s and 503s only, no reset, no time-out."""
    server = open_server("smollm2", "--limit-derender", "1", "--queue-limit", "2", "--offload", "thread")
    statuses: list[int] = []
    lock = threading.Lock()

    def client(seed: int) -> None:
        rng = random.Random(seed)
        connection = server.connect(timeout=30)
        done = 0
        while done < 3:
            reply = exchange(connection, "POST", DERENDER, derender_body(500, 5))
            with lock:
                statuses.append(reply.status)
            assert reply.status in (200, 503)
            done += reply.status == 200
            if reply.status == 503:
                time.sleep(rng.random() * int(reply.headers["retry-after"]) / 4)
        connection.close()

    clients = [threading.Thread(target=client, args=(seed,)) for seed in range(16)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert statuses.count(200) == 48
    assert set(statuses) <= {200, 503}


def test_a_deadline_ends_the_request_and_its_work(server: Server) -> None:
    began = time.perf_counter()
    reply = server.post(DERENDER, derender_body(), {**JSON_TYPE, "X-Request-Timeout": "0.15"})
    assert reply.status == 504
    assert reply.json["error"]["code"] == 504
    assert time.perf_counter() - began < 1
    until(lambda: running(server) == 0, 1)


def test_waiting_counts_against_the_deadline(server: Server) -> None:
    crowd = Crowd(server, 1)
    until(lambda: running(server) == 1, 10)
    reply = server.post(
        DERENDER, derender_body(20, 0) + b" " * 2000, {**JSON_TYPE, "X-Request-Timeout": "0.05"}
    )
    assert reply.status == 504
    assert waiting(server) == 0
    crowd.join()
    assert crowd.replies[0].status == 200


def test_the_servers_own_deadline_wins_when_it_is_smaller(open_server: OpenServer) -> None:
    server = open_server("smollm2", "--request-timeout", "0.1", "--offload", "thread")
    reply = server.post(DERENDER, derender_body(), {**JSON_TYPE, "X-Request-Timeout": "60"})
    assert reply.status == 504


@pytest.mark.parametrize("value", ["", "soon", "0", "-1", "nan", "inf", "1e999"])
def test_a_deadline_that_is_none(server: Server, value: str) -> None:
    reply = server.post(RENDER, SMALL_RENDER, {**JSON_TYPE, "X-Request-Timeout": value})
    assert reply.status == 400
    assert reply.json["error"]["param"] == "X-Request-Timeout"


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}"
ENDLESS += "{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("backend", "deadline_s", "statuses"),
    [("thread", 30, {400}), ("thread", 1, {400, 504}), ("thread", 0.1, {504}), ("process", 0.2, {504})],
)
def test_a_template_that_loops_for_ever(
    open_server: OpenServer, backend: str, deadline_s: float, statuses: set[int]
) -> None:
    """A deadline ends it, and the process with it; without one, the sandbox's bound after seconds."""
    options = ("--trust-request-chat-template", "--offload", backend, "--limit-gil", "2", "--processes", "2")
    server = open_server("smollm2", *options)
    others: list[int] = []
    stop = threading.Event()

    def other() -> None:
        while not stop.is_set():
            others.append(server.post(RENDER, SMALL_RENDER).status)

    thread = threading.Thread(target=other)
    thread.start()
    body = {**SMALL_RENDER, "chat_template": ENDLESS}
    began = time.perf_counter()
    reply = server.post(RENDER, body, {**JSON_TYPE, "X-Request-Timeout": str(deadline_s)})
    took = time.perf_counter() - began
    stop.set()
    thread.join()
    assert reply.status in statuses
    assert took < min(deadline_s, 10) + 2
    assert set(others) == {200}
    if backend == "process":
        until(lambda: figures(server)['trio_render_processes_lost_total{how="killed"}'] == 1, 2)
        until(lambda: figures(server)['trio_render_processes{state="idle"}'] == 3, 20)
