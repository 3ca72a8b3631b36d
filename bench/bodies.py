"""Requests to measure with."""

from __future__ import annotations

import json
import random

__all__ = ["chat_render_body", "derender_body"]


def derender_body(n_tokens: int, n_candidates: int, vocab_size: int, seed: int = 1) -> bytes:
    """Return a chat derender body of ``n_tokens`` random tokens with logprobs."""
    rng = random.Random(seed)
    ids = [rng.randrange(100, vocab_size) for _ in range(n_tokens)]
    content = [
        {
            "token_id": token_id,
            "logprob": -rng.random(),
            "top_logprobs": [
                {"token_id": rng.randrange(100, vocab_size), "logprob": -5 * rng.random()}
                for _ in range(n_candidates)
            ],
        }
        for token_id in ids
    ]
    choice = {"index": 0, "token_ids": ids, "finish_reason": "stop", "logprobs": {"content": content}}
    return json.dumps({"generate_response": {"request_id": "chatcmpl-bench", "choices": [choice]}}).encode()


def chat_render_body(n_words: int, seed: int = 1) -> bytes:
    """Return a chat render body of ``n_words`` made-up words."""
    rng = random.Random(seed)
    letters = "etaoinshrdlcumwfgypbvk"
    words = ("".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(n_words))
    return json.dumps({"messages": [{"role": "user", "content": " ".join(words)}]}).encode()
