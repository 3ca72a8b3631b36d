"""Streams over the per-chunk protocol: the state goes through JSON and back with every chunk."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from in_process import CHAT_DERENDER, COMPLETION_DERENDER, InProcessServer
from known_faults.bodies import logprob, logprobs

Pieces = Iterable[Sequence[int]]


def chunk_body(piece: Sequence[int] | None, state: Any = None, **fields: Any) -> dict[str, Any]:
    """The body of one chunk; ``fields`` of its choice."""
    choice = {"index": 0, "token_ids": None if piece is None else list(piece), **fields}
    chunk = {"request_id": "r", "choices": [choice]}
    return {"model": "m", "stream": True, "generate_chunk": chunk, "stream_state": state}


def stream(
    server: InProcessServer,
    path: str,
    pieces: Pieces,
    *,
    request: Mapping[str, Any] | None = None,
    prompt_ids: Sequence[int] | None = None,
    with_logprobs: bool = False,
    **last: Any,
) -> list[dict[str, Any]]:
    """The choices of a stream's chunks. ``last``: fields of the last choice."""
    pieces = list(pieces)
    choices, state = [], None
    for n, piece in enumerate(pieces):
        fields = last if n == len(pieces) - 1 else {}
        if with_logprobs:
            fields = {**fields, "logprobs": logprobs(*map(logprob, piece))}
        body = chunk_body(piece, state, **fields)
        if prompt_ids is not None:
            body["prompt_token_ids"] = list(prompt_ids)
        if request is not None and path == CHAT_DERENDER:
            body["chat_request"] = {"messages": [{"role": "user", "content": "x"}], **request}
        elif request is not None:
            body["completion_request"] = {"prompt": "x", **request}
        answer = server.ok(path, body)
        state = answer["stream_state"]
        choices += answer["chunk"]["choices"]
    return choices


def deltas(choices: Iterable[Mapping[str, Any]]) -> list[str]:
    """The text of each chunk."""
    return [choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices]


def singly(ids: Iterable[int]) -> list[list[int]]:
    """One token per chunk."""
    return [[token_id] for token_id in ids]


def streamed(server: InProcessServer, ids: Sequence[int], **options: Any) -> list[str]:
    """The deltas of ``ids`` token by token, which are the same in chats and completions."""
    texts = deltas(stream(server, COMPLETION_DERENDER, singly(ids), **options))
    assert deltas(stream(server, CHAT_DERENDER, singly(ids), **options)) == texts
    return texts
