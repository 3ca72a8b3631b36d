"""Does the loop stay calm? ``/health`` every 10 ms, beside one client that derenders in a loop.

The table by which the reference's own offloading was judged. Prober and client are processes of their own.
The client starts before the prober and ends after it.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from trio_render import open_workspace

from .bodies import derender_body
from .floors import derender_floor
from .load import Load, loading
from .models import model_directory
from .pictures import lines
from .prober import probing
from .report import Output, median, percentile, print_table
from .servers import served

__all__ = ["Plan", "run"]

_PATH = "/v1/chat/completions/derender"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. With a ``url``, it alone is measured, as the only mode."""

    tokens: list[int]
    candidates: list[int]
    modes: list[str]
    seconds: float
    runs: int
    url: str | None = None


def run(plan: Plan, model: Path | None, output: Output) -> None:
    """Measure, print, and write."""
    sizes = [(n, candidates) for candidates in plan.candidates for n in plan.tokens]
    modes = plan.modes if plan.url is None else ["url"]
    results: list[dict[str, Any]] = []
    with (
        model_directory(model) as folder,
        click.progressbar(length=len(modes) * (1 + len(sizes)) * plan.runs, label="probe") as bar,
    ):
        workspace = open_workspace(folder)
        vocab = workspace.model.vocab_size
        bodies = {size: derender_body(*size, vocab) for size in sizes}
        for mode in modes:
            with nullcontext(plan.url) if plan.url is not None else served(mode, folder) as url:
                for size in ((0, 0), *sizes):
                    body = bodies.get(size)
                    runs = []
                    for _ in range(plan.runs):
                        runs.append(_measure(url, body, plan.seconds))
                        if body is not None:
                            floor = derender_floor(workspace, body, plan.seconds / 2)
                            runs[-1]["share_of_floor"] = runs[-1]["rate"] / floor
                        bar.update(1)
                    results.append(_summary(mode, size, runs))
    _print(results, plan)
    output.finish("probe", asdict(plan), {"results": results}, lambda file: _draw(file, results))


def _summary(mode: str, size: tuple[int, int], runs: list[dict[str, float]]) -> dict[str, Any]:
    tokens, candidates = size
    about = {"mode": mode, "tokens": tokens, "candidates": candidates}
    return {**about, **{key: median([run[key] for run in runs]) for key in runs[0]}, "runs": runs}


def _print(results: list[dict[str, Any]], plan: Plan) -> None:
    idle = {r["mode"]: r["p50_ms"] for r in results if r["tokens"] == 0}
    rows = [
        [
            r["mode"],
            r["tokens"] or "idle",
            r["candidates"] if r["tokens"] else "",
            f"{r['p50_ms']:.2f}",
            f"{r['p99_ms']:.2f}",
            f"{r['p50_ms'] / idle[r['mode']]:.1f}",
            f"{r['p99_ms'] / idle[r['mode']]:.1f}",
            f"{r['rate']:.1f}" if r["tokens"] else "",
            f"{r['share_of_floor']:.2f}" if r["tokens"] else "",
        ]
        for r in results
    ]
    print_table(
        f"probe: one client, medians of {plan.runs} x {plan.seconds:g} s",
        [
            "mode",
            "tokens",
            "candidates",
            "p50 ms",
            "p99 ms",
            "p50/idle",
            "p99/idle",
            "derenders/s",
            "of the floor",
        ],
        rows,
    )


def _draw(file: Path, results: list[dict[str, Any]]) -> None:
    most = max(r["candidates"] for r in results)
    panels: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for key in ("p50_ms", "p99_ms"):
        panel = panels.setdefault(f"probe {key[:3]}, {most} candidates", {})
        for r in results:
            if r["candidates"] == most or not r["tokens"]:
                xs, ys = panel.setdefault(r["mode"], ([], []))
                xs.append(r["tokens"])
                ys.append(r[key])
    lines(file, panels, "tokens per derender (0: idle)", "milliseconds")


def _measure(url: str, body: bytes | None, seconds: float) -> dict[str, float]:
    rate = 0.0
    if body is None:
        with probing(url) as latencies:
            time.sleep(seconds)
    else:
        load = Load(_PATH, partial(_always, body=body), clients=1, repeats=True)
        with loading(url, load) as rates, probing(url) as latencies:
            time.sleep(seconds)
        rate = rates[0].per_s
    return {
        "p50_ms": percentile(latencies, 0.50) * 1000,
        "p99_ms": percentile(latencies, 0.99) * 1000,
        "rate": rate,
    }


def _always(client: int, *, body: bytes) -> list[bytes]:
    return [body] * 8
