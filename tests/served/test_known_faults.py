"""Faults that public reports describe for busy servers, clients that go or are slow, and odd bodies.

Each test is named by its issue number; ``known_faults/conftest.py`` lists the faults of other kinds.

Covered here: vllm#24910 (probe), vllm-mlx#416, vllm#38157 (large answers), ATOM#1562, anyio#787 (clients
that go), hypercorn#322 (slow readers), snekomatic#41, hypercorn#284 (bodies that trickle, 100 MB in chunks,
64 uploads at once).

Covered elsewhere:

- test_known_faults_in_bursts: ray#54070, BentoML#2781, trio#810 (over all endpoints), tokenizers#1539
- offload/test_known_faults: anyio#71, trio#810, anyio#947, anyio#787 (a failing child), trio#548
- test_prompt_embeds: vllm#38157 (large tensors), vllm#22962 (a file over the body limit)
- test_hangup, test_disconnect: what daf_butler#1407 and lmstudio-bug-tracker#1994 ask of plain requests
- test_lifecycle, test_connections: hypercorn#308 (idle connections, the grace time)
- test_overload: hypercorn#322 (deadlines)
- test_framing: hypercorn#282, hypercorn#284 (declared and chunked bodies over the limit)
- test_loop_stalls: that no endpoint's work is on the event loop at all

Waiting for streams of the completion endpoints: connect-py#174, vllm#25697, and those halves of
daf_butler#1407, lmstudio-bug-tracker#1994, hypercorn#308 and hypercorn#322.
"""

import json
import random
import select
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from served.conftest import OpenServer
from served.long_work import (
    ANY_LENGTH,
    COMPLETION_RENDER,
    DERENDER,
    RENDER,
    SMALL_RENDER,
    derender_body,
    derender_request,
)
from served.metrics import borrowed, figures, running, until, waiting
from served.proc import MIB, peak_resident, reads_proc, resident
from served.server import Server, exchange, payload, read_raw_reply, request_bytes, serve
from served.test_lifecycle import wait_until_it_refuses

SIX_MB = " ".join(f"word{n % 50_000}" for n in range(620_000))


# ------------------------------------------------------------ the event loop


def slowest_probe(server: Server, work: Callable[[], None]) -> float:
    """How long ``/health`` took at most, read every 5 ms while ``work`` went on."""
    slowest = 0.0
    probe = server.connect()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        while not done.done():
            began = time.perf_counter()
            assert exchange(probe, "GET", "/health", headers={}).status == 200
            slowest = max(slowest, time.perf_counter() - began)
            time.sleep(0.005)
        done.result()
    probe.close()
    return slowest


def check_probe(server: Server, path: str, body: bytes, status: int) -> None:
    """The probe takes under 50 ms, or on a slow machine at most 40 % of the request's own time.

    Work on the loop takes at least 70 %, in each of the tries that a busy machine gets.
    """
    tries: list[tuple[float, float]] = []

    def work() -> None:
        assert server.post(path, body).status == status

    for _ in range(6):
        began = time.perf_counter()
        slowest = slowest_probe(server, work)
        tries.append((slowest, time.perf_counter() - began))
        if slowest < max(0.05, 0.4 * tries[-1][1]):
            return
    pytest.fail(f"slowest probe and whole time, in seconds: {tries}")


@pytest.mark.parametrize(("options", "status"), [((), 400), (ANY_LENGTH, 200)])
@pytest.mark.parametrize("path", [RENDER, COMPLETION_RENDER])
def test_vllm_24910_the_probe_answers_while_6_mb_are_rendered(
    open_server: OpenServer, path: str, options: tuple[str, ...], status: int
) -> None:
    """A long prompt froze the probe for as long as it took, over and under the length limit."""
    body = payload({"messages": [{"role": "user", "content": SIX_MB}], "prompt": SIX_MB})
    check_probe(open_server("smollm2", *options), path, body, status)


def test_vllm_mlx_416_the_probe_answers_while_5000_messages_are_rendered(open_server: OpenServer) -> None:
    """The template engine worked on the loop, for seconds with a long history."""
    messages: list[dict[str, Any]] = []
    for n in range(1250):
        call = {"id": f"call{n}", "type": "function", "function": {"name": "f", "arguments": '{"q": "zz"}'}}
        messages += [
            {"role": "user", "content": "x" * 200},
            {"role": "assistant", "content": "y" * 200, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call{n}", "content": "r" * 200},
            {"role": "assistant", "content": "w" * 200},
        ]
    check_probe(
        open_server("qwen3", "--max-model-len", "1000000"), RENDER, payload({"messages": messages}), 200
    )


def test_vllm_38157_the_probe_answers_while_a_large_answer_is_written(server: Server) -> None:
    """Writing a large answer's JSON on the loop delayed the probe: 8,000 tokens with 20 candidates."""
    check_probe(server, DERENDER, derender_body(8000, 20), 200)


# ------------------------------------------------------------ clients that go


@pytest.mark.parametrize("moment", ["after 10 ms", "once they wait"])
def test_atom_1562_work_of_clients_that_go_is_dropped(open_server: OpenServer, moment: str) -> None:
    """Only streams were watched: plain requests ran on after their client had gone."""
    server = open_server("smollm2", *ANY_LENGTH, "--limit-shared", "1", "--offload", "thread")
    render = request_bytes(
        RENDER, payload({"messages": [{"role": "user", "content": "four thousand words " * 1333}]})
    )
    before = jobs_done(server, "render")
    with server.raw() as blocker, ExitStack() as stack:
        # Keeps the one worker busy for seconds, for as long as the others are there.
        blocker.sendall(derender_request(40_000, 20))
        until(lambda: running(server) == 1, 10)
        clients = [stack.enter_context(server.raw()) for _ in range(100)]
        for client in clients:
            client.sendall(render)
        if moment == "after 10 ms":
            time.sleep(0.01)
        else:
            until(lambda: waiting(server) == 100, 10)
        for client in clients:
            client.close()
        until(lambda: waiting(server) == 0, 2)
        assert running(server) == 1
    until(lambda: not any(borrowed(server).values()) and waiting(server) == 0, 2)
    assert jobs_done(server, "render") == before
    assert server.post(RENDER, SMALL_RENDER).status == 200


def jobs_done(server: Server, kind: str) -> float:
    """Jobs that came to an end of their own."""
    return figures(server)[f'trio_render_jobs_total{{kind="{kind}",outcome="ran"}}']


def test_anyio_787_errors_that_meet_a_disconnect(open_server: OpenServer) -> None:
    """A child that fails while its client goes: nothing hangs, and the server stays up."""
    server = open_server("smollm2", "--offload", "thread")
    rng = random.Random(787)
    too_long = request_bytes(COMPLETION_RENDER, payload({"prompt": ["one", "two", "hello " * 9000, "four"]}))
    for _ in range(1000):
        with server.raw() as client:
            client.sendall(too_long)
            time.sleep(rng.random() * 0.002)
    until(lambda: not any(borrowed(server).values()), 10)
    refused = server.post(COMPLETION_RENDER, {"prompt": ["one", "hello " * 9000]})
    assert refused.status == 400
    assert server.post(RENDER, SMALL_RENDER).status == 200
    server.assert_quiet()


# ------------------------------------------------------------ time and the end


def test_hypercorn_322_a_slow_reader_gets_its_whole_answer(model_folders: Path, log: Path) -> None:
    """A limit on the time of a response cut it off in mid-body."""
    options = ("--request-timeout", "2", "--write-timeout", "2", "--offload", "thread")
    with serve(model_folders / "smollm2", *options, log=log) as server, server.raw() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.sendall(derender_request(8000, 20))
        data = bytearray()
        while b"\r\n\r\n" not in data:
            data += client.recv(4096)
        size = int(bytes(data).lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        end = data.index(b"\r\n\r\n") + 4 + size
        began = time.perf_counter()
        while len(data) < end:
            # A quarter of it in a second: the kernel holds some MB, the rest is still the server's.
            time.sleep(max(0.0, 4 * len(data) / end - (time.perf_counter() - began)))
            piece = client.recv(65536)
            assert piece, f"cut off after {len(data)} of {end} bytes"
            data += piece
        assert time.perf_counter() - began > 3
        assert len(json.loads(data[-size:])["choices"][0]["logprobs"]["content"]) == 8000


def test_snekomatic_41_requests_in_flight_are_answered_at_sigterm(model_folders: Path, log: Path) -> None:
    """The process manager's stop killed the requests in flight."""
    with (
        serve(model_folders / "smollm2", "--offload", "thread", log=log, stop_within_s=20) as server,
        ExitStack() as stack,
    ):
        clients = [stack.enter_context(server.raw()) for _ in range(20)]
        for client in clients:
            client.sendall(derender_request(2000, 20))
        until(lambda: running(server) + waiting(server) + jobs_done(server, "derender") == 20, 10)
        assert waiting(server) > 5
        server.stop()
        wait_until_it_refuses(server.port)
        assert [read_raw_reply(client).status for client in clients] == [200] * 20


# ------------------------------------------------------------ bodies


def test_hypercorn_284_a_body_that_trickles(open_server: OpenServer) -> None:
    """The time for a body is for all of it: a byte now and then buys no more."""
    server = open_server("smollm2", "--max-body", "1M", "--body-timeout", "1")
    with server.raw() as client:
        client.sendall(request_bytes("/tokenize", b"", length=1000))
        began = time.perf_counter()
        while not is_readable(client, 0.2):
            client.sendall(b" ")
            assert time.perf_counter() - began < 5
        assert read_raw_reply(client).status == 408
        assert time.perf_counter() - began >= 1


@reads_proc
def test_hypercorn_284_100_mb_in_chunks(open_server: OpenServer) -> None:
    """A body without a declared size is refused when it passes the limit, not when it ends."""
    server = open_server("smollm2", "--max-body", "1M", "--body-timeout", "1")
    before = resident(server)
    chunk = b"%x\r\n%s\r\n" % (MIB, b" " * MIB)
    with server.raw() as client:
        client.sendall(request_bytes("/tokenize", b"", "Transfer-Encoding: chunked", length="") + chunk)
        sent = 1
        client.setblocking(False)
        left = memoryview(chunk)
        while not is_readable(client, 0) and sent < 100:
            select.select([client], [client], [], 5)
            try:
                left = left[client.send(left) :]
            except BlockingIOError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                break
            if not left:
                left = memoryview(chunk)
                sent += 1
        client.setblocking(True)
        assert sent < 20
        assert read_raw_reply(client).status == 413
    assert resident(server) - before < 20 * MIB


@reads_proc
def test_hypercorn_284_64_uploads_at_once(model_folders: Path, log: Path) -> None:
    """Bodies of the largest size cost their size, once, and only for as long as they are needed."""
    size = 2 * MIB
    body = b'{"prompt": "Hello world"}'.ljust(size)
    with serve(model_folders / "smollm2", "--max-body", "2M", log=log) as server, ExitStack() as stack:
        before = resident(server)
        clients = [stack.enter_context(server.raw()) for _ in range(64)]
        request = request_bytes("/tokenize", body)
        for client in clients:
            client.sendall(request[:-1])
        for client in clients:
            client.sendall(request[-1:])
        assert [read_raw_reply(client).json["count"] for client in clients] == [2] * 64
        assert peak_resident(server) - before < 64 * size * 1.5 + 32 * MIB


def is_readable(client: socket.socket, within_s: float) -> bool:
    return bool(select.select([client], [], [], within_s)[0])
