"""What does a chunk cost? Twenty streams at once, by each way in, and beside a server that does nothing.

Over the per-chunk endpoint and over WebSockets, the base line answers the same messages in the same run. The
front end's server-sent events come from an engine that costs nothing; paced, they show how late a chunk is.
One stream alone, with parsers on, and the bare step show whether the cost is flat.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from trio_render import open_workspace

from .models import model_directory
from .pictures import bars
from .prober import probing
from .report import Output, median, percentile, print_table
from .servers import served
from .sse import lateness, streaming
from .step_cost import step_costs
from .stream_load import WAYS, Streams, drive_streams, one_stream
from .upstream import upstream

__all__ = ["Plan", "run"]

_BASES = dict(zip(WAYS, (None, "empty handler", None, "echo"), strict=True))
_PARSERS = ("--reasoning-parser", "qwen3", "--tool-call-parser", "hermes", "--enable-auto-tool-choice")
_PACE_S = 0.02
_PACED_CHUNKS = 250
_WORD = " the"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. With a ``url``, the ways in there; the rest needs a server of ours."""

    streams: int
    tokens: int
    chunk_sizes: list[int]
    one_stream: int
    runs: int
    url: str | None = None


def run(plan: Plan, model: Path | None, output: Output) -> None:
    """Measure, print, and write."""
    figures: dict[str, Any] = {}
    with model_directory(model) as folder:
        workspace = open_workspace(folder)
        vocab = workspace.model.vocab_size
        figures["results"] = _ways(plan, folder, vocab)
        if plan.url is None:
            ids = workspace.model.tokenizer.encode(_WORD)
            with click.progressbar(plan.chunk_sizes, label="events") as sizes:
                figures["results"] += [_events(plan, folder, ids * size, size) for size in sizes]
            with click.progressbar(length=2, label="one pace, one stream") as bar:
                figures["paced"] = _paced(plan, folder, ids)
                bar.update(1)
                figures["one_stream"] = _one_stream(plan, folder, vocab)
                bar.update(1)
        figures["steps"] = step_costs(workspace, repeats=3 if plan.runs > 1 else 1)
    _print(plan, figures)
    rates: dict[str, dict[str, float]] = {}
    for r in figures["results"]:
        rates.setdefault(f"{r['size']} token(s) a chunk", {})[r["way"]] = r["chunks_per_s"]
    output.finish("streams", asdict(plan), figures, lambda file: bars(file, rates, "chunks per second"))


def _ways(plan: Plan, folder: Path, vocab: int) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    length = len(plan.chunk_sizes) * plan.runs * len(WAYS)
    with (
        nullcontext(plan.url) if plan.url is not None else served("auto", folder) as ours,
        served("empty", folder) as empty,
        click.progressbar(length=length, label="streams") as bar,
    ):
        for size in plan.chunk_sizes:
            runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
            for _ in range(plan.runs):
                for way, base in _BASES.items():
                    streams = Streams(plan.streams, plan.tokens, size, vocab)
                    runs[way].append(_measure(empty if base is None else ours, way, streams))
                    bar.update(1)
            results += _summary(size, runs)
    return results


def _measure(url: str, way: str, streams: Streams) -> dict[str, float]:
    with probing(url) as probes:
        figures = drive_streams(url, way, streams)
    return {
        "chunks_per_s": figures.rate,
        "p50_ms": percentile(figures.latencies, 0.5) * 1000,
        "p99_ms": percentile(figures.latencies, 0.99) * 1000,
        "probe_p99_ms": percentile(probes, 0.99) * 1000,
    }


def _summary(size: int, runs: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    summary = []
    for way, base in _BASES.items():
        medians = {key: median([one[key] for one in runs[way]]) for key in runs[way][0]}
        share = None
        if base is not None:
            pairs = zip(runs[way], runs[base], strict=True)
            share = median([one["chunks_per_s"] / other["chunks_per_s"] for one, other in pairs])
        summary.append({"way": way, "size": size, **medians, "share": share})
    return summary


def _events(plan: Plan, folder: Path, ids: list[int], size: int) -> dict[str, Any]:
    """Measure server-sent events from an engine that writes as fast as it is read."""
    chunks = plan.tokens // size
    runs = []
    with upstream(ids, chunks, 0) as engine, served("auto", folder, _behind(engine)) as url:
        for _ in range(plan.runs):
            with probing(url) as probes, streaming(url, plan.streams, plan.tokens) as streams:
                began = time.monotonic()
            ended = max(stream.arrived[-1] for stream in streams)
            runs.append((plan.streams * chunks / (ended - began), percentile(probes, 0.99) * 1000))
    rate, probe = (median(values) for values in zip(*runs, strict=True))
    named = {"way": "front end, events", "size": size, "chunks_per_s": rate, "probe_p99_ms": probe}
    return {**named, "p50_ms": None, "p99_ms": None, "share": None}


def _paced(plan: Plan, folder: Path, ids: list[int]) -> dict[str, float]:
    """Return how late events are, with an engine that sends a chunk of each stream every 20 ms."""
    with upstream(ids, _PACED_CHUNKS, _PACE_S) as engine, served("auto", folder, _behind(engine)) as url:
        with streaming(url, plan.streams, _PACED_CHUNKS) as streams:
            pass
        late = [one.ms for one in lateness(engine, streams)]
    return {f"p{p}_ms": percentile(late, p / 100) for p in (50, 99)}


def _behind(engine: str) -> tuple[str, ...]:
    return ("--engine", "http", "--upstream", engine)


def _one_stream(plan: Plan, folder: Path, vocab: int) -> dict[str, float]:
    with served("auto", folder, _PARSERS) as url:
        runs = [one_stream(url, plan.one_stream, vocab) for _ in range(plan.runs)]
    return {key: median([one[key] for one in runs]) for key in runs[0]}


def _print(plan: Plan, figures: dict[str, Any]) -> None:
    rows = [
        [
            r["way"],
            r["size"],
            f"{r['chunks_per_s']:.0f}",
            f"{r['chunks_per_s'] * r['size']:.0f}",
            "" if r["p99_ms"] is None else f"{r['p99_ms']:.1f}",
            f"{r['probe_p99_ms']:.1f}",
            "" if r["share"] is None else f"{r['share']:.2f}",
        ]
        for r in figures["results"]
    ]
    print_table(
        f"streams: {plan.streams} of {plan.tokens} tokens, medians of {plan.runs}",
        ["way", "tokens/chunk", "chunks/s", "tokens/s", "p99 ms", "probe p99 ms", "of its base"],
        rows,
    )
    if (late := figures.get("paced")) is not None:
        print(
            f"\nfront end, events every {_PACE_S * 1000:.0f} ms of each: late by {late['p50_ms']:.2f} ms p50,"
        )
        print(f"{late['p99_ms']:.2f} ms p99, from the engine's chunk to the client's socket")
    if (one := figures.get("one_stream")) is not None:
        print(f"\none stream of {one['chunks']:.0f} one-token chunks, parsed (qwen3, hermes):")
        print(
            f"{one['seconds']:.2f} s; a chunk takes {one['early_ms']:.2f} ms early, {one['late_ms']:.2f} late"
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
            for s in figures["steps"]
        ],
    )
