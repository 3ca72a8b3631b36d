"""How late is a stream beside prompt embeddings? With an engine that sends a chunk every 20 ms.

One server streams a completion from that engine, and reads tensors meanwhile: each is decoded, and then
answered with 400, since requests to an engine carry token ids. The bodies' last bytes are held back until
all have arrived, so that decoding can be told from the arrival of hundreds of megabytes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click

from trio_render import open_model

from .http_client import Connection, request_bytes
from .mix import embeds_body
from .report import percentile
from .servers import served
from .sse import Late, lateness, streaming
from .upstream import upstream

__all__ = ["Lateness", "measure_beside"]

_PACE_S = 0.02
_PATH = "/v1/completions/render"
_ROUNDS_SHARE = 0.8

_Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Lateness:
    """From an engine's chunk to the client's socket, of so many chunks."""

    beside: str
    p50_ms: float
    p99_ms: float
    chunks: int


def measure_beside(folder: Path, rows: int, hidden: int, count: int, seconds: float) -> list[Lateness]:
    """Return how late a stream is alone, and beside ``count`` requests that arrive, and that decode."""
    ids = open_model(folder).tokenizer.encode(" the")
    chunks = int(seconds / _PACE_S)
    request = request_bytes("POST", _PATH, embeds_body(rows, hidden))
    options = ("--enable-prompt-embeds", "--engine", "http", "--upstream")
    with (
        upstream(ids, chunks, _PACE_S) as engine,
        served("auto", folder, (*options, engine)) as url,
        click.progressbar(length=2, label="beside a stream") as bar,
    ):
        with streaming(url, 1, chunks) as streams:
            # It goes on until the engine has sent all.
            pass
        bar.update(1)
        alone = lateness(engine, streams)
        with streaming(url, 1, chunks) as streams:
            spans = list(_rounds(url, request, count, time.monotonic() + seconds * _ROUNDS_SHARE))
        bar.update(1)
        beside = lateness(engine, streams)
    arriving, decoding = [arrived for arrived, _ in spans], [decoded for _, decoded in spans]
    what = f"{count} of {rows} rows"
    found = [
        _summary("nothing", alone),
        _summary(f"{what}, arriving", _within(beside, arriving)),
        _summary(f"{what}, decoded", _within(beside, decoding)),
    ]
    return [one for one in found if one is not None]


def _rounds(url: str, request: bytes, count: int, until: float) -> Iterator[tuple[_Span, _Span]]:
    """Post ``count`` requests at a time, again and again, and yield when they arrived and were decoded."""
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(url)) for _ in range(count)]
        while time.monotonic() < until:
            began = time.monotonic()
            for connection in connections:
                connection.send(request[:-1])
            released = time.monotonic()
            for connection in connections:
                connection.send(request[-1:])
            for connection in connections:
                status, answer = connection.receive()
                assert status == 400, answer[:300]
            yield (began, released), (released, time.monotonic())


def _within(late: list[Late], spans: list[_Span]) -> list[Late]:
    return [one for one in late if any(begin <= one.sent <= end for begin, end in spans)]


def _summary(beside: str, late: list[Late]) -> Lateness | None:
    """Return the figures of some chunks; ``None`` where none was sent in that time."""
    if not late:
        return None
    values = [one.ms for one in late]
    return Lateness(beside, percentile(values, 0.5), percentile(values, 0.99), len(values))
