"""A mixed load: what is sent, how often, and when. Made beforehand, the same for every server."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

import pybase64

from .bodies import chat_body, derender_body, words
from .http_client import request_bytes

__all__ = ["CHUNKS_PER_S", "EMBEDS", "STREAM", "Mix", "Scheduled", "embeds_body", "schedule"]

_BASE_RATES = {"chat short": 80.0, "chat long": 8.0, "completion batch": 4.0, "derender heavy": 4.0}
"""Requests per second of each kind at rate 1."""
EMBEDS = "prompt embeds"
_EMBEDS_PER_S = 1.0
STREAM = "stream chunk"
CHUNKS_PER_S = 50
"""Of the one stream, at any rate."""

_CHAT = "/v1/chat/completions/render"
_DERENDER = "/v1/chat/completions/derender"
_COMPLETION = "/v1/completions/render"
_SHORT_WORDS = 60
_LONG_WORDS = 4000
_PROMPTS, _PROMPT_WORDS = 64, 200
_HEAVY = (2000, 5)
_EMBEDS_ROWS = 2048
_KEPT = 16


@dataclass(frozen=True, slots=True)
class Mix:
    """How much of it: ``rate`` times the base rates, for ``seconds``. ``hidden`` adds prompt embeddings."""

    rate: float
    seconds: float
    vocab_size: int
    hidden: int | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """All kinds of requests in it."""
        return (*self.rates, STREAM)

    @property
    def rates(self) -> dict[str, float]:
        """Requests per second of each kind but the stream's."""
        rates = {kind: base * self.rate for kind, base in _BASE_RATES.items()}
        return rates if self.hidden is None else {**rates, EMBEDS: _EMBEDS_PER_S * self.rate}


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A request and when it is due, in seconds from the start."""

    due_s: float
    kind: str
    request: bytes


def schedule(mix: Mix) -> list[Scheduled]:
    """Return the requests in the order in which they are due, each kind's at random times (Poisson)."""
    scheduled = []
    for kind, rate in mix.rates.items():
        rng = random.Random(f"mix {kind}")
        make = _makers(mix)[kind]
        kept: list[bytes] = []
        due = rng.expovariate(rate)
        while due < mix.seconds:
            # Large ones are few and come again: other kinds drive them out of caches meanwhile.
            if kind == "chat short" or len(kept) < _KEPT:
                kept.append(make(rng))
            scheduled.append(Scheduled(due, kind, kept[-1] if kind == "chat short" else rng.choice(kept)))
            due += rng.expovariate(rate)
    return sorted(scheduled, key=lambda one: one.due_s)


def _makers(mix: Mix) -> dict[str, Callable[[random.Random], bytes]]:
    def heavy(rng: random.Random) -> bytes:
        body = derender_body(*_HEAVY, mix.vocab_size, rng.randrange(1 << 30))
        return request_bytes("POST", _DERENDER, body)

    def batch(rng: random.Random) -> bytes:
        prompts = [words(rng, _PROMPT_WORDS) for _ in range(_PROMPTS)]
        return request_bytes("POST", _COMPLETION, json.dumps({"prompt": prompts}).encode())

    return {
        "chat short": lambda rng: request_bytes("POST", _CHAT, chat_body(words(rng, _SHORT_WORDS))),
        "chat long": lambda rng: request_bytes("POST", _CHAT, chat_body(words(rng, _LONG_WORDS))),
        "completion batch": batch,
        "derender heavy": heavy,
        EMBEDS: lambda _: request_bytes("POST", _COMPLETION, embeds_body(_EMBEDS_ROWS, mix.hidden or 1)),
    }


def embeds_body(rows: int, hidden: int) -> bytes:
    """Return a completion request of one bfloat16 tensor of zeros, as safetensors."""
    size = rows * hidden * 2
    head = {"prompt_embeds": {"dtype": "BF16", "shape": [rows, hidden], "data_offsets": [0, size]}}
    text = json.dumps(head).encode()
    file = len(text).to_bytes(8, "little") + text + bytes(size)
    return b'{"prompt_embeds":"%b"}' % pybase64.b64encode(file)
