"""How late is a stream beside prompt embeddings? With an engine that sends a chunk every 20 ms.

One server streams a completion from that engine, and reads tensors meanwhile: each is decoded, and then
answered with 400, since requests to an engine carry token ids.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trio_render import open_model

from .http_client import Connection, request_bytes
from .mix import embeds_body
from .report import percentile
from .servers import served
from .sse import lateness_ms, streaming
from .upstream import upstream

__all__ = ["Lateness", "measure_beside"]

_PACE_S = 0.02
_PATH = "/v1/completions/render"


@dataclass(frozen=True, slots=True)
class Lateness:
    """From an engine's chunk to the client's socket. ``read``: how many tensors were read meanwhile."""

    beside: str
    p50_ms: float
    p99_ms: float
    read: int


def measure_beside(folder: Path, rows: int, hidden: int, count: int, seconds: float) -> list[Lateness]:
    """Return how late a stream is alone, and beside ``count`` requests at a time."""
    ids = open_model(folder).tokenizer.encode(" the")
    chunks = int(seconds / _PACE_S)
    request = request_bytes("POST", _PATH, embeds_body(rows, hidden))
    with (
        upstream(ids, chunks, _PACE_S) as engine,
        served("auto", folder, ("--enable-prompt-embeds", "--engine", "http", "--upstream", engine)) as url,
    ):
        found = []
        for n in (0, count):
            with _posting(url, request, n) as answered, streaming(url, 1, chunks) as streams:
                # It goes on until the engine has sent all.
                pass
            late = lateness_ms(engine, streams)
            beside = f"{n} of {rows} rows at a time" if n else "nothing"
            found.append(Lateness(beside, percentile(late, 0.5), percentile(late, 0.99), len(answered)))
        return found


@contextmanager
def _posting(url: str, request: bytes, count: int) -> Iterator[list[int]]:
    """Post the request over ``count`` connections, again and again, and collect the statuses."""
    statuses: list[int] = []
    stop = threading.Event()

    def post() -> None:
        with Connection(url) as connection:
            while not stop.is_set():
                status, answer = connection.exchange(request)
                if status != 400:
                    raise RuntimeError(f"a tensor was answered with {status}: {answer[:300]!r}")
                statuses.append(status)

    posters = [threading.Thread(target=post) for _ in range(count)]
    for poster in posters:
        poster.start()
    try:
        yield statuses
    finally:
        stop.set()
        for poster in posters:
            poster.join()
