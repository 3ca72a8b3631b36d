"""What no server can beat: a loop in one process that only decodes, joins and encodes."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from trio_render import DerenderChatRequest, Workspace

__all__ = ["derender_floor"]


def derender_floor(workspace: Workspace, body: bytes, seconds: float) -> float:
    """Return how many derenders a second the loop does: no checks, no stops, no partial characters."""
    decoder = msgspec.json.Decoder(DerenderChatRequest)
    values = workspace.model.tokenizer.table.byte_values
    texts = [value.decode("utf-8", "replace") for value in values]
    ends = time.perf_counter() + seconds
    began = time.perf_counter()
    n = 0
    while time.perf_counter() < ends:
        _derender(decoder.decode(body), values, texts)
        n += 1
    return n / (time.perf_counter() - began)


def _derender(request: DerenderChatRequest, values: list[bytes], texts: list[str]) -> bytes:
    choice = request.generate_response.choices[0]
    content = choice.logprobs.content if choice.logprobs is not None else None
    text = b"".join([values[i] for i in choice.token_ids or ()]).decode("utf-8", "replace")
    entries = [
        {**_entry(e, values, texts), "top_logprobs": [_entry(c, values, texts) for c in e.top_logprobs]}
        for e in content or ()
    ]
    message = {"role": "assistant", "content": text}
    return msgspec.json.encode({"choices": [{"message": message, "logprobs": {"content": entries}}]})


def _entry(entry: Any, values: list[bytes], texts: list[str]) -> dict[str, Any]:
    token_id = entry.token_id
    return {"token": texts[token_id], "logprob": entry.logprob, "bytes": list(values[token_id])}
