"""Requests to measure with. No two of one kind are alike, so that no cache flatters."""

from __future__ import annotations

import json
import random
import re
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path

__all__ = [
    "chat_bodies",
    "chat_body",
    "completion_bodies",
    "conversation_bodies",
    "derender_body",
    "source_bodies",
    "turns",
    "unseen_words",
    "words",
]

_LETTERS = "etaoinshrdlcumwfgypbvk"
_AS_TEXT = bytes(b" "[0] if n < 40 else _LETTERS.encode()[n % len(_LETTERS)] for n in range(256))
"""A byte as a letter, or in six of a space: text at the speed of random bytes."""
_BYTES_PER_WORD = 10
_SOURCE_CHARS = 4_000_000
_EVERY = 8


def words(rng: random.Random, count: int) -> str:
    """Return words in the order they have somewhere in Python's library: as common, and as rare, as there."""
    known = _words()
    start = rng.randrange(len(known) - count)
    return " ".join(known[start : start + count])


def unseen_words(rng: random.Random, count: int) -> str:
    """Return made-up words, hardly any of them seen before: an encoder's cache of words is of no use."""
    made = rng.randbytes(count * _BYTES_PER_WORD).translate(_AS_TEXT).decode()
    return " ".join(made.split()[:count])


def chat_body(*contents: str) -> bytes:
    """Return a chat of these messages, the first one a user's, by turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": content} for n, content in enumerate(contents)]
    return json.dumps({"messages": messages}).encode()


def chat_bodies(client: int, *, n_words: int, count: int) -> list[bytes]:
    """Return chats of one message of ``n_words`` words."""
    rng = random.Random(f"chat {client} {n_words}")
    return [chat_body(words(rng, n_words)) for _ in range(count)]


def source_bodies(client: int, *, chars: int, count: int) -> list[bytes]:
    """Return chats of one message of Python source, in which every eighth word is made up."""
    rng = random.Random(f"source {client}")
    source = _source()
    return [chat_body(_varied(rng, source, chars)) for _ in range(count)]


def completion_bodies(client: int, *, n_prompts: int, n_words: int, count: int) -> list[bytes]:
    """Return completions of ``n_prompts`` prompts."""
    rng = random.Random(f"completion {client}")
    prompts = ([words(rng, n_words) for _ in range(n_prompts)] for _ in range(count))
    return [json.dumps({"prompt": texts}).encode() for texts in prompts]


def turns(rng: random.Random, n_turns: int, saying: Callable[[random.Random, int], str] = words) -> list[str]:
    """Return a conversation: 60 words in, 120 out, and so on; the last message is a user's."""
    return [saying(rng, 120 if n % 2 else 60) for n in range(2 * n_turns - 1)]


def conversation_bodies(client: int, *, conversations: int, n_turns: int) -> list[bytes]:
    """Return what a client sends that has some conversations, one after another, each re-sent every turn."""
    rng = random.Random(f"conversation {client}")
    bodies = []
    for _ in range(conversations):
        said = turns(rng, n_turns)
        roles = ("user", "assistant")
        parts = [json.dumps({"role": roles[n % 2], "content": text}).encode() for n, text in enumerate(said)]
        bodies += [b'{"messages":[%b]}' % b",".join(parts[: 2 * turn + 1]) for turn in range(n_turns)]
    return bodies


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


def _varied(rng: random.Random, source: str, chars: int) -> str:
    start = rng.randrange(len(source) - chars)
    parts = source[start : start + chars].split(" ")
    for n in range(rng.randrange(_EVERY), len(parts), _EVERY):
        # Empty ones are an indentation's.
        if parts[n]:
            parts[n] = "".join(rng.choices(_LETTERS, k=len(parts[n])))
    return " ".join(parts)


@cache
def _words() -> list[str]:
    return re.findall(r"[A-Za-z]{2,}", _source())


@cache
def _source() -> str:
    """Return source text of Python's own library."""
    texts: list[str] = []
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        texts.append(file.read_text(encoding="utf-8", errors="replace"))
        if sum(map(len, texts)) > _SOURCE_CHARS:
            break
    return "\n".join(texts)
