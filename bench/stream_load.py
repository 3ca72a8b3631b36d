"""Streams over the per-chunk endpoint, over WebSockets, and base lines of the same form."""

from __future__ import annotations

import random
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe

from .child import child
from .report import percentile
from .stream_clients import Figures, HttpStream, SocketStream, StreamClient, chunk_json, drive

__all__ = ["WAYS", "Streams", "drive_streams", "one_stream"]

WAYS = ("empty handler", "per chunk", "echo", "WebSocket")
"""Base lines before what is compared with them."""

_PATH = "/v1/chat/completions/derender"
_REQUEST = b'"chat_request":{"messages":[{"role":"user","content":"What is the capital of France?"}]}'
_PARSED_REQUEST = (
    b'"chat_request":{"messages":[{"role":"user","content":"What time is it?"}],"tool_choice":"auto",'
    b'"tools":[{"type":"function","function":{"name":"clock","parameters":{"type":"object","properties":{}}}}]},'
    b'"prompt_token_ids":[100,101,102]'
)
_SAMPLE_STATE = b'{"v":"8GYTDhEW8PdqTcG9MnZl4ZkAzmsNR6zCAP+UwsQAxAAAoMQAAQ=="}'
_EDGE = 50


@dataclass(frozen=True, slots=True)
class Streams:
    """So many at once, of so many random tokens each, by chunks of ``size``."""

    streams: int
    tokens: int
    size: int
    vocab_size: int


def drive_streams(url: str, way: str, what: Streams) -> Figures:
    """Run the streams in a process of its own, and return what it has seen."""
    with child(f"the streaming client ({way})", _load, url, way, what) as pipe:
        figures: Figures = pipe.recv()
        return figures


def one_stream(url: str, chunks: int, vocab_size: int) -> dict[str, float]:
    """Return what one parsed stream of one-token chunks takes over the per-chunk endpoint."""
    figures = drive_streams(url, "per chunk, parsed", Streams(1, chunks, 1, vocab_size))
    latencies = figures.latencies
    return {
        "chunks": chunks,
        "seconds": sum(latencies),
        "early_ms": percentile(latencies[_EDGE : 3 * _EDGE], 0.5) * 1000,
        "late_ms": percentile(latencies[-2 * _EDGE :], 0.5) * 1000,
    }


def _load(url: str, way: str, what: Streams, pipe: Pipe) -> None:
    rng = random.Random(1)
    chunks = [
        chunk_json([rng.randrange(100, what.vocab_size) for _ in range(what.size)])
        for _ in range(what.tokens // what.size)
    ]
    clients = [_client(url, way) for _ in range(what.streams)]
    pipe.send(drive(clients, lambda _: chunks))


def _client(url: str, way: str) -> StreamClient:
    match way:
        case "empty handler":
            return HttpStream(url, "/empty", _REQUEST, sample_state=_SAMPLE_STATE)
        case "per chunk":
            return HttpStream(url, _PATH, _REQUEST)
        case "per chunk, parsed":
            return HttpStream(url, _PATH, _PARSED_REQUEST)
        case "echo":
            echo = SocketStream(url, "/echo", b"{%b}" % _REQUEST)
            echo.sock.recv(1 << 16)
            return echo
        case _:
            return SocketStream(url, _PATH, b"{%b}" % _REQUEST)
