"""Is the step flat? What one costs early and late in a stream, and how large its state is."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from trio_render import Workspace
from trio_render.derender.stream_chat import chat_chunk
from trio_render.derender.stream_plan import open_chat_stream
from trio_render.derender.stream_seal import seal
from trio_render.protocol.stream import ChatStreamRequest, GenerateChunk

from .report import median

__all__ = ["step_costs"]

_EARLY = range(50, 150)
_LATE = range(3950, 4050)


def step_costs(workspace: Workspace, repeats: int) -> list[dict[str, Any]]:
    """Return, per kind of stream, median microseconds of early and late steps and bytes of the states."""
    rng = random.Random(1)
    vocab = workspace.model.vocab_size
    table = workspace.model.tokenizer.table.byte_values
    broken = [i for i, value in enumerate(table) if value and value[-1] >= 0xC0]
    kinds: list[tuple[str, dict[str, Any], Callable[[], int]]] = [
        ("text", {}, lambda: rng.randrange(100, vocab)),
        ("text, 4 stop strings", {"stop": ["\n\nUser:", "###", "</s>", "Observation:"]}, lambda: 100),
        ("broken characters", {}, lambda: rng.choice(broken)),
    ]
    return [
        _cost(workspace, name, request, [t() for _ in range(4096)], repeats) for name, request, t in kinds
    ]


def _cost(
    workspace: Workspace, name: str, request: dict[str, Any], ids: Sequence[int], repeats: int
) -> dict[str, Any]:
    stream = msgspec.convert({"chat_request": {"messages": [], **request}}, ChatStreamRequest)
    chunks = [
        msgspec.convert({"request_id": "r", "choices": [{"index": 0, "token_ids": [i]}]}, GenerateChunk)
        for i in ids
    ]
    early: list[float] = []
    late: list[float] = []
    sizes: list[int] = []
    for _ in range(repeats):
        times, sizes = _run(workspace, stream, chunks)
        early.append(median(times[_EARLY.start : _EARLY.stop]))
        late.append(median(times[_LATE.start : _LATE.stop]))
    return {
        "stream": name,
        "early_us": min(early) * 1e6,
        "late_us": min(late) * 1e6,
        "early_bytes": max(sizes[_EARLY.start : _EARLY.stop]),
        "late_bytes": max(sizes[_LATE.start : _LATE.stop]),
    }


def _run(
    workspace: Workspace, stream: ChatStreamRequest, chunks: Sequence[GenerateChunk]
) -> tuple[list[float], list[int]]:
    model, policy, cache = workspace.model, workspace.policy, workspace.fragments
    plan = open_chat_stream(model, policy, stream)
    states = {-1: plan.start}
    times, sizes = [], []
    gc.disable()
    try:
        for chunk in chunks:
            began = time.perf_counter()
            _, changed = chat_chunk(model, policy, cache, plan, states, chunk, _never)
            times.append(time.perf_counter() - began)
            states.update(changed)
            sizes.append(len(seal(states[0], b"", "chat", "r").v))
    finally:
        gc.enable()
    return times, sizes


def _never() -> None:
    """The checkpoint of a caller that stays."""
