"""What does encoding the last turn of a conversation cost, by what has been encoded before?

In this process, in one thread, without a server. The encoder's cache of words is its own, and always on.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from trio_render import Model, open_model
from trio_render.model.chat_template import TemplateInput
from trio_render.model.tokenizer import SEGMENT_CACHE_BYTES

from .bodies import turns, unseen_words, words
from .report import median

__all__ = ["NO_REUSE", "encode_costs"]

NO_REUSE = "nothing"


def encode_costs(folder: Path, n_turns: int, repeats: int) -> list[dict[str, Any]]:
    """Return, per way, median microseconds of encoding the last turn."""
    costs = []
    for way, segment_cache_bytes, seen in (
        (NO_REUSE, 0, False),
        ("the turns before, no segment cache", 0, True),
        ("the turns before", SEGMENT_CACHE_BYTES, True),
    ):
        model = open_model(folder, segment_cache_bytes=segment_cache_bytes)
        # A thread's first encode compiles.
        model.tokenizer.encode("Hello world, 12345! " * 50)
        for name, saying in (("known", words), ("unseen", unseen_words)):
            seeds = [random.Random(f"{name} {n}") for n in range(repeats)]
            runs = [_last_turn(model, turns(rng, n_turns, saying), seen) for rng in seeds]
            microseconds, tokens = (median(values) for values in zip(*runs, strict=True))
            costs.append({"words": name, "way": way, "us": microseconds, "tokens": tokens})
    return sorted(costs, key=lambda cost: str(cost["words"]))


def _last_turn(model: Model, said: list[str], seen: bool) -> tuple[float, int]:
    n_turns = len(said) // 2 + 1
    prompts = [_prompt(model, said[: 2 * turn + 1]) for turn in range(n_turns)]
    for prompt in prompts[:-1] if seen else ():
        model.tokenizer.encode(prompt)
    began = time.perf_counter()
    ids = model.tokenizer.encode(prompts[-1])
    return (time.perf_counter() - began) * 1e6, len(ids)


def _prompt(model: Model, said: list[str]) -> str:
    assert model.template is not None, "the model has no chat template"
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(said)]
    return model.template.render(
        TemplateInput(
            messages=messages,
            tools=None,
            documents=None,
            add_generation_prompt=True,
            continue_final_message=False,
            variables={},
        ),
        _never,
    )


def _never() -> None:
    """The checkpoint of a caller that stays."""
