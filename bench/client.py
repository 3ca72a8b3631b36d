"""The floors: what no server of this make, and no loop in one process, can beat.

An empty handler and an echo WebSocket cost what the framework costs; the loop costs what derendering costs
without any server. Shares in other tables are shares of these, taken in the same run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import click

from trio_render import open_workspace

from .bodies import derender_body
from .child import child
from .floors import derender_floor
from .load import Load, measure
from .models import model_directory
from .pictures import bars
from .report import Output, median, print_table
from .servers import served
from .stream_clients import SocketStream, chunk_json, drive

__all__ = ["Plan", "run"]

_CANDIDATES = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    clients: int
    tokens: list[int]
    seconds: float
    runs: int


def run(plan: Plan, model: Path | None, output: Output) -> None:
    """Measure, print, and write."""
    found: dict[str, list[float]] = {}
    with (
        model_directory(model) as folder,
        served("empty", folder) as url,
        click.progressbar(length=plan.runs * (2 + len(plan.tokens)), label="client") as bar,
    ):
        workspace = open_workspace(folder)
        bodies = {n: derender_body(n, _CANDIDATES, workspace.model.vocab_size) for n in plan.tokens}
        for tokens, body in bodies.items():
            name = f"decode and join, {tokens} tokens x {_CANDIDATES}"
            for _ in range(plan.runs):
                found.setdefault(name, []).append(derender_floor(workspace, body, plan.seconds))
                bar.update(1)
        load = Load("/empty", partial(_small, count=100), plan.clients, repeats=True)
        for _ in range(plan.runs):
            found.setdefault("empty handler", []).append(measure(url, load, plan.seconds).per_s)
            bar.update(1)
            found.setdefault("echo WebSocket", []).append(_echoes(url, plan))
            bar.update(1)
    medians = {name: median(rates) for name, rates in found.items()}
    rows = [[name, f"{rate:.1f}", _spread(found[name])] for name, rate in medians.items()]
    title = f"client: the floors; {plan.clients} clients, medians of {plan.runs}"
    print_table(title, ["floor", "per second", "from - to"], rows)
    figures: dict[str, Any] = {"per_s": medians, "runs": found}
    output.finish("client", asdict(plan), figures, lambda file: bars(file, {"floors": medians}, "per second"))


def _small(client: int, *, count: int) -> list[bytes]:
    return [b'{"client":%d,"n":%d}' % (client, n) for n in range(count)]


def _spread(rates: Sequence[float]) -> str:
    return f"{min(rates):.1f} - {max(rates):.1f}"


def _echoes(url: str, plan: Plan) -> float:
    with child("the echo's clients", _echo, url, plan.clients, plan.seconds) as pipe:
        rate: float = pipe.recv()
        return rate


def _echo(url: str, clients: int, seconds: float, pipe: Pipe) -> None:
    message = chunk_json([1234])
    sockets = [SocketStream(url, "/echo", message) for _ in range(clients)]
    for client in sockets:
        client.sock.recv(1 << 16)
    pipe.send(drive(sockets, lambda _: [message] * int(seconds * 1000)).rate)
