"""What does reading prompt embeddings cost, and how late does it make the event loop?

From a body's chunks, as they arrived, to tensors: the texts are lifted out of the JSON and read, each in a
job of its own. Beside it a task sleeps for 1 ms at a time; its largest gap is the loop's stall, the freeing
of chunks and tensors included. The base line is base64 decoding in one call and one copy, in fresh memory.
"""

from __future__ import annotations

import gc
import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import anyio
import pybase64

from app.body import forget
from app.process import tuned_process
from trio_render import Limits, Policy, open_offloader, open_renderer, open_workspace
from trio_render.offload.jobs import Job
from trio_render.offload.offloader import Offloader
from trio_render.render.embeds.lifting import lift_embeds

from .models import model_directory
from .report import median, print_table, write_json

__all__ = ["run"]

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


def run(rows: list[int], runs: int, model: Path | None, json_file: Path | None) -> None:
    """Measure, print, and write."""
    figures: list[dict[str, Any]] = []
    with _wide_model(model, max(rows)) as folder, tuned_process():
        load = partial(open_workspace, folder, Policy(enable_prompt_embeds=True))
        workspace = load()
        idle = anyio.run(_measure, load, workspace, "thread", b"", 0, runs, backend="trio")
        print(f"An idle loop's stall: {idle.stall:.1f} ms.")
        texts = {(n_rows, form): _text(n_rows, form) for n_rows in rows for form in _FORMS}
        # First of all: what bodies leave behind is memory that has been touched, and costs less.
        bases = {case: _base_line(text, runs) for case, text in texts.items()}
        for (n_rows, form), text in texts.items():
            base = bases[n_rows, form]
            for backend in ("inline", "thread"):
                for count in (1, 4):
                    case = (load, workspace, backend, text, count, runs)
                    found = anyio.run(_measure, *case, backend="trio")
                    named = {"rows": n_rows, "form": form, "backend": backend, "at once": count}
                    figures.append({**named, "base": base, **found._asdict()})
    table = [
        [*(f"{value:.1f}" if type(value) is float else value for value in row.values())] for row in figures
    ]
    title = f"embeds: {_HIDDEN} wide, bfloat16; medians of {runs}, in milliseconds"
    print_table(title, list(figures[0]), table)
    write_json(json_file, "embeds", {"milliseconds": figures})


@contextmanager
def _wide_model(given: Path | None, rows: int) -> Iterator[Path]:
    """Yield a directory with the tokenizer of a model, and a config of our width."""
    with model_directory(given) as folder, TemporaryDirectory(prefix="trio-render-bench-") as made:
        target = Path(made)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (target / name).write_bytes((folder / name).read_bytes())
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        wide = {"hidden_size": _HIDDEN, "dtype": "bfloat16", "max_position_embeddings": rows + 1}
        (target / "config.json").write_text(json.dumps({"vocab_size": config["vocab_size"], **wide}))
        yield target


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


async def _read(offloader: Offloader, renderer: Any, body: list[bytes], ended: list[float]) -> None:
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


def _chunks(text: bytes) -> list[bytes]:
    body = b'{"model": "m", "prompt_embeds": "' + text + b'"}'
    return [body[start : start + _CHUNK] for start in range(0, len(body), _CHUNK)]
