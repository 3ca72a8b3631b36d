"""Requests that keep a worker busy for a while."""

import json
import random
from functools import cache

from served.server import request_bytes

DERENDER = "/v1/chat/completions/derender"
RENDER = "/v1/chat/completions/render"
COMPLETION_RENDER = "/v1/completions/render"
SMALL_RENDER = {"messages": [{"role": "user", "content": "hi"}]}
ANY_LENGTH = ("--max-model-len", "10000000")


@cache
def derender_body(n_tokens: int = 8000, n_candidates: int = 20, vocab: int = 49152) -> bytes:
    """A derender with logprobs. 8,000 tokens with 20 candidates each: most of a second's work.

    The candidates have texts instead of ids, which are no one's to have ready.
    """
    rng = random.Random(n_tokens)
    ids = [rng.randrange(100, vocab) for _ in range(n_tokens)]
    content = [
        {
            "token_id": i,
            "logprob": -0.5,
            "top_logprobs": [{"token": f"candidate {i} of many", "logprob": -1.5}] * n_candidates,
        }
        for i in ids
    ]
    choice = {"index": 0, "token_ids": ids, "logprobs": {"content": content}}
    return json.dumps({"generate_response": {"request_id": "r", "choices": [choice]}}).encode()


def derender_request(n_tokens: int = 8000, n_candidates: int = 20) -> bytes:
    return request_bytes(DERENDER, derender_body(n_tokens, n_candidates))
