"""Closed-loop load: some clients that each send their next request when the one before is answered.

All clients are one process, which takes them by turns: with two cores, a process each would take from the
server what they cost themselves. The requests are ready before the first is sent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe

from .child import child
from .http_client import connected, request_bytes
from .report import percentile
from .stream_clients import drive

__all__ = ["Load", "Rate", "loading", "measure"]

Bodies = Callable[[int], Sequence[bytes]]
"""Makes one client's bodies, by its number, in another process: a module's function, or a `partial`."""

_WARM_UPS = 5


@dataclass(frozen=True, slots=True)
class Load:
    """Requests to ``path``. A client whose bodies are used up begins again if ``repeats``, or is done."""

    path: str
    bodies: Bodies
    clients: int = 4
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Rate:
    """What the clients have seen."""

    per_s: float
    p50_ms: float
    p99_ms: float


@contextmanager
def loading(url: str, load: Load) -> Iterator[list[Rate]]:
    """Load the server for the length of the block, warmed up. The list has the rate when it has ended."""
    rates: list[Rate] = []
    with child(_what(load), _run, url, load, math.inf) as pipe:
        pipe.recv()
        yield rates
        pipe.send("done")
        rates.append(pipe.recv())


def measure(url: str, load: Load, seconds: float) -> Rate:
    """Load the server for ``seconds``, or until all bodies are used up."""
    with child(_what(load), _run, url, load, seconds) as pipe:
        pipe.recv()
        rate: Rate = pipe.recv()
        return rate


def _what(load: Load) -> str:
    return f"the clients of {load.path}"


def _run(url: str, load: Load, seconds: float, pipe: Pipe) -> None:
    requests = [
        [request_bytes("POST", load.path, body) for body in load.bodies(n)] for n in range(load.clients)
    ]
    # A share only: where bodies differ so that no cache flatters, these are not sent again.
    warm = [min(_WARM_UPS, len(own) // 4) for own in requests]
    drive([_Client(url) for _ in requests], lambda n: requests[n][: warm[n]])
    pipe.send("warm")
    ends = time.perf_counter() + seconds

    def until_the_end(n: int) -> Iterator[bytes]:
        while True:
            for request in requests[n][warm[n] :]:
                if time.perf_counter() >= ends or pipe.poll():
                    return
                yield request
            if not load.repeats:
                return

    figures = drive([_Client(url) for _ in requests], until_the_end)
    p50, p99 = (percentile(figures.latencies, fraction) * 1000 for fraction in (0.5, 0.99))
    pipe.send(Rate(figures.rate, p50, p99))


class _Client:
    """A keep-alive connection for ready-made requests."""

    def __init__(self, url: str) -> None:
        self.sock = connected(url)

    def message(self, chunk: bytes) -> bytes:
        return chunk

    def is_answered(self, data: bytearray) -> bool:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return False
        length = int(data[:end].lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(data) < end + 4 + length:
            return False
        if not data.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(bytes(data[:500]).decode("latin-1"))
        return True
