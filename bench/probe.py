"""Does the loop stay calm? ``/health`` every 10 ms, beside one client that derenders in a loop.

The table by which the reference's own offloading was judged. Prober and client are processes of their own.
"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import click

from trio_render import open_workspace

from .bodies import derender_body
from .floors import derender_floor
from .http_client import Connection, request_bytes
from .models import model_directory
from .report import machine, median, percentile, print_table, write_json
from .servers import served

__all__ = ["Plan", "run"]

_INTERVAL_S = 0.01
_WARM_UPS = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    tokens: list[int]
    candidates: int
    modes: list[str]
    seconds: float
    runs: int


def run(plan: Plan, model: Path | None, json_file: Path | None) -> None:
    """Measure, print, and write."""
    with model_directory(model) as folder:
        workspace = open_workspace(folder)
        bodies = {n: derender_body(n, plan.candidates, workspace.model.vocab_size) for n in plan.tokens}
        floors = {n: derender_floor(workspace, body, plan.seconds) for n, body in bodies.items()}
        results: list[dict[str, Any]] = []
        steps = [(mode, n) for mode in plan.modes for n in (0, *plan.tokens)]
        with click.progressbar(length=len(steps) * plan.runs, label="probe") as bar:
            for mode in plan.modes:
                with served(mode, folder) as url:
                    for n in (0, *plan.tokens):
                        runs = []
                        for _ in range(plan.runs):
                            runs.append(_measure(url, bodies.get(n), plan.seconds))
                            bar.update(1)
                        results.append(_summary(mode, n, runs, floors.get(n)))
    _print(results, plan)
    write_json(json_file, "probe", {"plan": str(plan), "results": results})


def _summary(mode: str, tokens: int, runs: list[dict[str, float]], floor: float | None) -> dict[str, Any]:
    medians = {key: median([run[key] for run in runs]) for key in runs[0]}
    share = medians["rate"] / floor if floor else None
    return {"mode": mode, "tokens": tokens, **medians, "share_of_floor": share, "runs": runs}


def _print(results: list[dict[str, Any]], plan: Plan) -> None:
    about = machine()
    idle = {r["mode"]: r["p50_ms"] for r in results if r["tokens"] == 0}
    rows = [
        [
            r["mode"],
            r["tokens"] or "idle",
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
        f"probe: {plan.candidates} candidates, medians of {plan.runs} x {plan.seconds:g} s,"
        f" {about['cores']} cores, Python {about['python']}",
        ["mode", "tokens", "p50 ms", "p99 ms", "p50/idle", "p99/idle", "derenders/s", "of the floor"],
        rows,
    )


def _measure(url: str, body: bytes | None, seconds: float) -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    load = context.Process(target=_load, args=(url, body, seconds + 0.5, theirs), daemon=True)
    if body is not None:
        load.start()
        ours.recv()
    latencies = _probe_elsewhere(context, url, seconds)
    rate = 0.0
    if body is not None:
        rate = ours.recv()
        load.join()
    return {
        "p50_ms": percentile(latencies, 0.50) * 1000,
        "p99_ms": percentile(latencies, 0.99) * 1000,
        "rate": rate,
    }


def _load(url: str, body: bytes, seconds: float, pipe: Pipe) -> None:
    request = request_bytes("POST", "/v1/chat/completions/derender", body)
    with Connection(url) as connection:
        for _ in range(_WARM_UPS):
            status, answer = connection.exchange(request)
            assert status == 200, answer[:300]
        pipe.send("warm")
        began = time.perf_counter()
        n = 0
        while time.perf_counter() < began + seconds:
            connection.exchange(request)
            n += 1
        pipe.send(n / (time.perf_counter() - began))


def _probe_elsewhere(context: Any, url: str, seconds: float) -> list[float]:
    ours, theirs = context.Pipe()
    prober = context.Process(target=_probe, args=(url, seconds, theirs), daemon=True)
    prober.start()
    latencies: list[float] = ours.recv()
    prober.join()
    return latencies


def _probe(url: str, seconds: float, pipe: Pipe) -> None:
    request = request_bytes("GET", "/health")
    latencies = []
    with Connection(url) as connection:
        connection.exchange(request)
        ends = time.perf_counter() + seconds
        due = time.perf_counter()
        while due < ends:
            time.sleep(max(due - time.perf_counter(), 0))
            began = time.perf_counter()
            connection.exchange(request)
            latencies.append(time.perf_counter() - began)
            due = max(due + _INTERVAL_S, time.perf_counter())
    pipe.send(latencies)
