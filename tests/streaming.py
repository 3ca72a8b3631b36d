"""Whole streams, driven through the step: what their client has at the end, to compare with one-shot."""

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from opened_models import never

from trio_render import Model, Policy, workspace_of
from trio_render.derender.stream_chat import chat_chunk
from trio_render.derender.stream_completion import completion_chunk
from trio_render.derender.stream_plan import open_chat_stream, open_completion_stream
from trio_render.protocol.chat import ChatRequest
from trio_render.protocol.completion import CompletionRequest
from trio_render.protocol.stream import ChatStreamRequest, ChunkChoice, CompletionStreamRequest, GenerateChunk

POLICY = Policy(served_names=("m",))


def pieces_of(ids: Sequence[int], cuts: Sequence[int]) -> list[list[int]]:
    """``ids`` cut at places; empty pieces where two places are the same."""
    return [list(ids[a:b]) for a, b in pairwise([0, *cuts, len(ids)])]


def every_cut(n: int) -> Iterator[list[int]]:
    """All ways to cut ``n`` things into pieces."""
    for bits in range(2 ** (n - 1)):
        yield [place for place in range(1, n) if bits >> (place - 1) & 1]


def random_cuts(n: int, rng: random.Random) -> list[int]:
    """Some places to cut ``n`` things at; a place may come twice."""
    return sorted(rng.choices(range(n + 1), k=rng.randint(0, n)))


def chunk_of(piece: list[int], logprobs: Any = None, **fields: Any) -> GenerateChunk:
    return GenerateChunk(
        request_id="r", choices=[ChunkChoice(index=0, token_ids=piece, logprobs=logprobs, **fields)]
    )


def run_stream(
    model: Model,
    kind: str,
    chunks: Sequence[GenerateChunk],
    request: dict[str, Any] | None = None,
    prompt_ids: list[int] | None = None,
) -> list[dict[str, Any]]:
    """The chunks' first choices as plain data."""
    if kind == "chat":
        chat = None if request is None else msgspec.convert({"messages": [], **request}, ChatRequest)
        plan = open_chat_stream(
            model, POLICY, ChatStreamRequest(chat_request=chat, prompt_token_ids=prompt_ids)
        )
    else:
        asked = {"prompt": "x", **(request or {})}
        completion = None if request is None else msgspec.convert(asked, CompletionRequest)
        plan = open_completion_stream(
            model, POLICY, CompletionStreamRequest(completion_request=completion, prompt_token_ids=prompt_ids)
        )
    states = {-1: plan.start}
    shown = []
    cache = workspace_of(model, POLICY).fragments
    for chunk in chunks:
        if kind == "chat":
            answer: Any
            answer, changed = chat_chunk(model, POLICY, cache, plan, states, chunk, never)
        else:
            answer, changed = completion_chunk(model, POLICY, plan, states, chunk, never)
        states.update(changed)
        shown += msgspec.json.decode(msgspec.json.encode(answer))["choices"]
    return shown


def joined_text(choices: Sequence[dict[str, Any]]) -> str:
    return "".join(
        choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices
    )


def finish(choices: Sequence[dict[str, Any]]) -> tuple[Any, Any]:
    """The one finish reason, and the stop reason beside it."""
    (last,) = [choice for choice in choices if choice["finish_reason"] is not None]
    return last["finish_reason"], last.get("stop_reason")
