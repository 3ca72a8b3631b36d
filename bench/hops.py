"""What is worth a hop? Costs of running a job inline, in a thread and in a process, by its size.

Where `auto`'s thresholds (``inline_below`` of each `Job`) come from: a job belongs inline while it costs
no more than a hop to a thread.
"""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from trio_render import Offloader, Workspace, open_offloader, open_workspace
from trio_render.offload.jobs import Job

from .bodies import chat_body, derender_body, words
from .models import model_directory
from .pictures import bars
from .report import Output, median, print_table

__all__ = ["run"]

_Case = tuple[str, Job[bytes], list[bytes]]
_DIFFERENT = 1000


def _nothing(workspace: Workspace, checkpoint: Any, body: Any) -> bytes:
    return b""


def _chat(workspace: Workspace, checkpoint: Any, body: Any) -> bytes:
    from trio_render.render import wire

    return wire.chat_json(workspace, checkpoint, body)


def _derender(workspace: Workspace, checkpoint: Any, body: Any) -> bytes:
    from trio_render.derender import wire

    return wire.chat_json(workspace, checkpoint, body)


def _chats(n_words: int) -> list[bytes]:
    """Return chats that no cache of segments knows."""
    rng = random.Random(n_words)
    return [chat_body(words(rng, n_words)) for _ in range(_DIFFERENT)]


def run(repeats: int, model: Path | None, output: Output) -> None:
    """Measure, print, and write."""
    with model_directory(model) as folder:
        workspace = open_workspace(folder)
        vocab = workspace.model.vocab_size
        cases: list[_Case] = [("nothing", Job(_nothing, "render"), [b"{}"])]
        cases += [
            (f"chat render, {n} words", Job(_chat, "render"), _chats(n)) for n in (10, 60, 200, 600, 2000)
        ]
        cases += [
            (
                f"derender, {n} tokens, {c} candidates",
                Job(_derender, "derender"),
                [derender_body(n, c, vocab)],
            )
            for n, c in ((1, 0), (8, 0), (32, 0), (8, 5), (64, 5))
        ]
        figures = {
            backend: anyio.run(_measure, backend, folder, workspace, cases, repeats, backend="trio")
            for backend in ("inline", "thread", "process")
        }
    rows = [
        [name, len(bodies[0]), *(f"{figures[backend][n]:.0f}" for backend in figures)]
        for n, (name, _, bodies) in enumerate(cases)
    ]
    print_table(f"hops: medians of {repeats}, in microseconds", ["job", "body bytes", *figures], rows)
    names = [name for name, _, _ in cases]
    panels = {backend: dict(zip(names, costs, strict=True)) for backend, costs in figures.items()}
    output.finish(
        "hops",
        {"repeats": repeats},
        {"microseconds": panels},
        lambda file: bars(file, panels, "microseconds"),
    )


async def _measure(
    backend: Any, folder: Path, workspace: Workspace, cases: list[_Case], repeats: int
) -> list[float]:
    load = partial(open_workspace, folder)
    async with open_offloader(load, workspace, backend=backend, processes=1) as offloader:
        return [await _case(offloader, job, bodies, repeats) for _, job, bodies in cases]


async def _case(offloader: Offloader, job: Job[bytes], bodies: list[bytes], repeats: int) -> float:
    costs = []
    for n in range(repeats):
        began = time.perf_counter()
        await offloader.run(job, [bodies[n % len(bodies)]])
        costs.append((time.perf_counter() - began) * 1e6)
    return median(costs)
