"""``/health`` every 10 ms, from a process of its own: how late a server's event loop is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe

from .child import child
from .http_client import Connection, request_bytes

__all__ = ["probing"]

_INTERVAL_S = 0.01


@contextmanager
def probing(url: str) -> Iterator[list[float]]:
    """Probe for the length of the block. The list it yields is empty until the block has ended."""
    latencies: list[float] = []
    with child("the prober", _probe, url) as pipe:
        pipe.recv()
        pipe.send("begin")
        yield latencies
        pipe.send("done")
        latencies += pipe.recv()


def _probe(url: str, pipe: Pipe) -> None:
    request = request_bytes("GET", "/health")
    latencies = []
    with Connection(url) as connection:
        connection.exchange(request)
        pipe.send("ready")
        pipe.recv()
        due = time.perf_counter()
        while not pipe.poll():
            time.sleep(max(due - time.perf_counter(), 0))
            began = time.perf_counter()
            connection.exchange(request)
            latencies.append(time.perf_counter() - began)
            due = max(due + _INTERVAL_S, time.perf_counter())
    pipe.send(latencies)
