"""Many clients at once: every answer is the one that its request gets alone."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
import trio
from served.conftest import OpenServer
from served.requests_mix import Request, lasting, library_answers, make_requests
from served.server import Server, request_bytes

N_CLIENTS = 200

PROBE_S = 10
"""Loose: sixteen threads share the lock of one interpreter, and the clients share its cores."""


@dataclass
class Client:
    """One keep-alive connection."""

    stream: trio.SocketStream
    buffer: bytearray = field(default_factory=bytearray)

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        return await self.send(request_bytes(path, body))

    async def get(self, path: str) -> tuple[int, bytes]:
        return await self.send(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())

    async def send(self, data: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        await self.stream.send_all(data)
        while (end := self.buffer.find(b"\r\n\r\n") + 4) < 4:
            await self.more()
        head = bytes(self.buffer[:end]).lower()
        size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(self.buffer) < end + size:
            await self.more()
        body = bytes(self.buffer[end : end + size])
        del self.buffer[: end + size]
        return int(head.split()[1]), body

    async def more(self) -> None:
        piece = await self.stream.receive_some()
        assert piece, "the server closed the connection"
        self.buffer += piece


@asynccontextmanager
async def client_of(server: Server) -> AsyncIterator[Client]:
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    async with stream:
        yield Client(stream)


@pytest.fixture
def wide(open_server: OpenServer) -> Server:
    return open_server("smollm2", "--limit-render", "8", "--limit-derender", "8")


async def probe(server: Server, waits_s: list[float]) -> None:
    """Ask for the server's health again and again, each time on a connection of its own, as probes do."""
    while True:
        since = time.monotonic()
        async with client_of(server) as client:
            assert (await client.get("/health"))[0] == 200
        waits_s.append(time.monotonic() - since)
        await trio.sleep(0.01)


async def load(server: Server, requests: list[Request], expected: list[object], at_least_s: float) -> int:
    """Every request once, and again and again until the time is over; the number of answers."""
    numbers = count()
    ends = time.monotonic() + at_least_s
    n_answers = 0

    async def one_client() -> None:
        nonlocal n_answers
        async with client_of(server) as client:
            for number in numbers:
                if number >= len(requests) and time.monotonic() > ends:
                    return
                index = number % len(requests)
                status, body = await client.post(*requests[index])
                assert status == 200, (requests[index][0], body[:500])
                assert lasting(body) == expected[index], requests[index]
                n_answers += 1

    async with trio.open_nursery() as clients:
        for _ in range(N_CLIENTS):
            clients.start_soon(one_client)
    return n_answers


async def check_under_load(server: Server, folder: Path, n_requests: int, at_least_s: float) -> None:
    requests = make_requests(n_requests, seed=1)
    assert len(set(requests)) == n_requests
    expected = await library_answers(folder, requests)
    waits_s: list[float] = []
    with trio.fail_after(60 + at_least_s):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(probe, server, waits_s)
            n_answers = await load(server, requests, expected, at_least_s)
            nursery.cancel_scope.cancel()
    assert n_answers >= n_requests
    assert len(waits_s) >= 3, "the health probe came to nothing"
    assert max(waits_s) < PROBE_S
    server.assert_quiet()


async def test_answers_do_not_mix(wide: Server, model_folders: Path) -> None:
    await check_under_load(wide, model_folders / "smollm2", 1400, at_least_s=0)


@pytest.mark.slow
async def test_answers_do_not_mix_for_long(wide: Server, model_folders: Path) -> None:
    await check_under_load(wide, model_folders / "smollm2", 5000, at_least_s=30)
