"""What does reading prompt embeddings cost, and how late does it make the event loop?

From a body's chunks, as they arrived, to tensors: the texts are lifted out of the JSON and read, each in a
job of its own. Beside it a task sleeps for 1 ms at a time; its largest gap is the loop's stall, the freeing
of chunks and tensors included. The base line is base64 decoding in one call and one copy, in fresh memory.
"""

from __future__ import annotations

import gc
import io
import time
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import click
import pybase64

from app.body import Pieces, forget
from app.process import tuned_process
from trio_render import Limits, Policy, open_offloader, open_renderer, open_workspace
from trio_render.offload.jobs import Job
from trio_render.offload.offloader import Offloader
from trio_render.render.embeds.lifting import lift_embeds

from .embeds_beside import Lateness, measure_beside
from .models import model_directory, wide_model
from .pictures import bars
from .report import Output, median, print_table

__all__ = ["Plan", "run"]

_HIDDEN = 4096
_CHUNK = 65_536
_TICK_S = 0.001
_IDLE_S = 1.0
_FORMS = ("torch.save", "safetensors")
_LIFT = Job(lift_embeds, "render", stays=True)


class Figures(NamedTuple):
    """Medians, in milliseconds."""

    stall: float
    wall: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: rows of the tensors, and how many requests at once beside a stream."""

    rows: list[int]
    beside: int
    runs: int


def run(plan: Plan, model: Path | None, output: Output) -> None:
    """Measure, print, and write."""
    with model_directory(model) as given, wide_model(given, _HIDDEN, max(plan.rows) + 1) as folder:
        with tuned_process():
            figures = _in_process(plan, folder)
        late = measure_beside(folder, max(plan.rows), _HIDDEN, plan.beside, 3.0 if plan.runs == 1 else 10.0)
    table = [
        [*(f"{value:.1f}" if type(value) is float else value for value in row.values())] for row in figures
    ]
    title = f"embeds: {_HIDDEN} wide, bfloat16; medians of {plan.runs}, in milliseconds"
    print_table(title, list(figures[0]), table)
    _print_late(late)
    stalls = {
        f"{r['rows']} rows, {r['at once']} at once, {r['form']}": r["stall"]
        for r in figures
        if r["backend"] == "thread"
    }
    panels = {
        "stall of the event loop": stalls,
        "a paced stream, late": {one.beside: one.p99_ms for one in late},
    }
    content = {"milliseconds": figures, "beside": [asdict(one) for one in late]}
    output.finish("embeds", asdict(plan), content, lambda file: bars(file, panels, "ms"))


def _print_late(late: list[Lateness]) -> None:
    rows = [[one.beside, f"{one.p50_ms:.2f}", f"{one.p99_ms:.2f}", one.chunks] for one in late]
    title = "a stream with a chunk every 20 ms: from the engine's chunk to the client's socket"
    print_table(title, ["beside it", "p50 ms", "p99 ms", "chunks"], rows)


def _in_process(plan: Plan, folder: Path) -> list[dict[str, Any]]:
    rows, runs = plan.rows, plan.runs
    figures: list[dict[str, Any]] = []
    load = partial(open_workspace, folder, Policy(enable_prompt_embeds=True))
    workspace = load()
    idle = anyio.run(_measure, load, workspace, "thread", b"", 0, runs, backend="trio")
    print(f"An idle loop's stall: {idle.stall:.1f} ms.")
    texts = {(n_rows, form): _text(n_rows, form) for n_rows in rows for form in _FORMS}
    # First of all: what bodies leave behind is memory that has been touched, and costs less.
    bases = {case: _base_line(text, runs) for case, text in texts.items()}
    cases = list(product(texts, ("inline", "thread"), (1, 4)))
    with click.progressbar(cases, label="embeds") as shown:
        for (n_rows, form), backend, count in shown:
            case = (load, workspace, backend, texts[n_rows, form], count, runs)
            found = anyio.run(_measure, *case, backend="trio")
            named = {"rows": n_rows, "form": form, "backend": backend, "at once": count}
            figures.append({**named, "base": bases[n_rows, form], **found._asdict()})
    return figures


def _text(rows: int, form: str) -> bytes:
    import torch
    from safetensors.torch import save

    tensor = torch.randn(rows, _HIDDEN).to(torch.bfloat16)
    if form == "safetensors":
        return pybase64.b64encode(save({"prompt_embeds": tensor}))
    file = io.BytesIO()
    torch.save(tensor, file)
    return pybase64.b64encode(file.getvalue())


def _base_line(text: bytes, runs: int) -> float:
    import torch

    costs = []
    for _ in range(runs):
        began = time.perf_counter()
        decoded = bytearray(pybase64.b64decode(text, validate=True))
        tensor = torch.frombuffer(decoded, dtype=torch.uint8)
        costs.append((time.perf_counter() - began) * 1000)
        del tensor, decoded
    return median(costs)


async def _measure(load: Any, workspace: Any, backend: Any, text: bytes, count: int, runs: int) -> Figures:
    stalls, walls = [], []
    opening = open_offloader(load, workspace, backend=backend, limits=Limits())
    async with opening as offloader, open_renderer(workspace, offloader=offloader) as renderer:
        for _ in range(runs):
            bodies = [_chunks(text) for _ in range(count)]
            gc.collect()
            ticker, ended = _Ticker(), []
            async with anyio.create_task_group() as group:
                group.start_soon(ticker.run)
                await anyio.sleep(0.05)
                ticker.worst = 0.0
                began = time.perf_counter()
                async with anyio.create_task_group() as readers:
                    for body in bodies:
                        readers.start_soon(_read, offloader, renderer, body, ended)
                walls.append((max(ended, default=began) - began) * 1000)
                await anyio.sleep(0.05 if bodies else _IDLE_S)
                stalls.append(ticker.worst * 1000)
                group.cancel_scope.cancel()
    return Figures(median(stalls), median(walls))


async def _read(
    offloader: Offloader, renderer: Any, body: list[bytes | memoryview], ended: list[float]
) -> None:
    lifted = await offloader.run(_LIFT, body)
    assert lifted is not None
    tensor = await renderer.prompt_embeds(lifted.texts[0])
    ended.append(time.perf_counter())
    assert tensor.shape[1] == _HIDDEN
    del lifted, tensor
    await forget(body)


class _Ticker:
    """Notes the largest time between two turns of the loop, but for the millisecond it sleeps."""

    def __init__(self) -> None:
        self.worst = 0.0

    async def run(self) -> None:
        last = time.perf_counter()
        while True:
            await anyio.sleep(_TICK_S)
            now = time.perf_counter()
            self.worst = max(self.worst, now - last - _TICK_S)
            last = now


def _chunks(text: bytes) -> list[bytes | memoryview]:
    body, arrived = b'{"model": "m", "prompt_embeds": "' + text + b'"}', Pieces()
    for start in range(0, len(body), _CHUNK):
        arrived.add(body[start : start + _CHUNK])
    return arrived.pieces
