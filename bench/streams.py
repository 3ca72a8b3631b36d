"""What does a chunk cost? Twenty streams at once, over the per-chunk endpoint and over WebSockets.

Each is compared, in the same run and with the same messages, with a server of the same make that does
nothing. The clients are one process, a probe of ``/health`` is another. And: is the step flat?
"""

from __future__ import annotations

import multiprocessing
import random
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import click

from trio_render import open_workspace

from .http_client import Connection, request_bytes
from .models import model_directory
from .report import machine, median, percentile, print_table, write_json
from .servers import served
from .step_cost import step_costs
from .stream_clients import Figures, HttpStream, SocketStream, StreamClient, chunk_json, drive

__all__ = ["Plan", "run"]

_PATH = "/v1/chat/completions/derender"
_REQUEST = b'"chat_request":{"messages":[{"role":"user","content":"What is the capital of France?"}]}'
_SAMPLE_STATE = b'{"v":"8GYTDhEW8PdqTcG9MnZl4ZkAzmsNR6zCAP+UwsQAxAAAoMQAAQ=="}'
_PROBE_S = 0.01
_WAYS = ("empty handler", "per chunk", "echo", "WebSocket")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    streams: int
    tokens: int
    chunk_sizes: list[int]
    runs: int


def run(plan: Plan, model: Path | None, json_file: Path | None) -> None:
    """Measure, print, and write."""
    with model_directory(model) as folder:
        workspace = open_workspace(folder)
        vocab = workspace.model.vocab_size
        steps = step_costs(workspace, repeats=3)
        results: list[dict[str, Any]] = []
        with (
            served("auto", folder) as ours,
            served("empty", folder) as empty,
            click.progressbar(length=len(plan.chunk_sizes) * plan.runs * len(_WAYS), label="streams") as bar,
        ):
            for size in plan.chunk_sizes:
                runs: dict[str, list[dict[str, float]]] = {way: [] for way in _WAYS}
                for _ in range(plan.runs):
                    for way in _WAYS:
                        url = empty if way in ("empty handler", "echo") else ours
                        runs[way].append(_measure(url, way, plan, size, vocab))
                        bar.update(1)
                results += _summary(size, runs)
    _print(results, steps, plan)
    write_json(json_file, "streams", {"plan": str(plan), "results": results, "steps": steps})


def _summary(size: int, runs: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    summary = []
    for way, base in zip(_WAYS, (None, "empty handler", None, "echo"), strict=True):
        medians = {key: median([one[key] for one in runs[way]]) for key in runs[way][0]}
        share = None
        if base is not None:
            pairs = zip(runs[way], runs[base], strict=True)
            share = median([one["chunks_per_s"] / other["chunks_per_s"] for one, other in pairs])
        summary.append({"way": way, "size": size, **medians, "share": share})
    return summary


def _print(results: list[dict[str, Any]], steps: list[dict[str, Any]], plan: Plan) -> None:
    about = machine()
    print_table(
        f"streams: {plan.streams} of {plan.tokens} tokens, medians of {plan.runs}, {about['cores']} cores,"
        f" Python {about['python']}",
        ["way", "tokens/chunk", "chunks/s", "tokens/s", "p99 ms", "probe p99 ms", "of empty"],
        [
            [
                r["way"],
                r["size"],
                f"{r['chunks_per_s']:.0f}",
                f"{r['chunks_per_s'] * r['size']:.0f}",
                f"{r['p99_ms']:.1f}",
                f"{r['probe_p99_ms']:.1f}",
                "" if r["share"] is None else f"{r['share']:.2f}",
            ]
            for r in results
        ],
    )
    print_table(
        "one step, and the state that a client carries",
        ["stream", "chunk 50-150 us", "3950-4050 us", "ratio", "state bytes", "later"],
        [
            [
                s["stream"],
                f"{s['early_us']:.1f}",
                f"{s['late_us']:.1f}",
                f"{s['late_us'] / s['early_us']:.2f}",
                s["early_bytes"],
                s["late_bytes"],
            ]
            for s in steps
        ],
    )


def _measure(url: str, way: str, plan: Plan, size: int, vocab: int) -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    prober = context.Process(target=_probe, args=(url, theirs), daemon=True)
    prober.start()
    ours.recv()
    load, loads = context.Pipe()
    client = context.Process(target=_load, args=(url, way, plan, size, vocab, loads), daemon=True)
    client.start()
    figures: Figures = load.recv()
    client.join()
    ours.send("done")
    probes: list[float] = ours.recv()
    prober.join()
    return {
        "chunks_per_s": figures.rate,
        "p50_ms": percentile(figures.latencies, 0.5) * 1000,
        "p99_ms": percentile(figures.latencies, 0.99) * 1000,
        "probe_p99_ms": percentile(probes, 0.99) * 1000,
    }


def _load(url: str, way: str, plan: Plan, size: int, vocab: int, pipe: Pipe) -> None:
    rng = random.Random(1)
    chunks = [
        chunk_json([rng.randrange(100, vocab) for _ in range(size)]) for _ in range(plan.tokens // size)
    ]
    clients = [_client(url, way) for _ in range(plan.streams)]
    pipe.send(drive(clients, lambda _: chunks))


def _client(url: str, way: str) -> StreamClient:
    match way:
        case "empty handler":
            return HttpStream(url, "/empty", _REQUEST, sample_state=_SAMPLE_STATE)
        case "per chunk":
            return HttpStream(url, _PATH, _REQUEST)
        case "echo":
            echo = SocketStream(url, "/echo", b"{%b}" % _REQUEST)
            echo.sock.recv(1 << 16)
            return echo
        case _:
            return SocketStream(url, _PATH, b"{%b}" % _REQUEST)


def _probe(url: str, pipe: Pipe) -> None:
    request = request_bytes("GET", "/health")
    latencies = []
    with Connection(url) as connection:
        connection.exchange(request)
        pipe.send("ready")
        due = time.perf_counter()
        while not pipe.poll():
            time.sleep(max(due - time.perf_counter(), 0))
            began = time.perf_counter()
            connection.exchange(request)
            latencies.append(time.perf_counter() - began)
            due = max(due + _PROBE_S, time.perf_counter())
    pipe.send(latencies)
