"""What does encoding the last turn of a conversation cost, by what has been encoded before?

In this process, in one thread, without a server. Word caches are the encoder's own, and always on.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from trio_render import Model, open_model
from trio_render.model.chat_template import TemplateInput
from trio_render.model.tokenizer import SEGMENT_CACHE_BYTES

from .bodies import turns
from .report import median

__all__ = ["encode_costs"]


def encode_costs(folder: Path, n_turns: int, repeats: int) -> list[dict[str, Any]]:
    """Return, per way, median microseconds of encoding the last turn."""
    costs = []
    for way, segment_cache_bytes, seen in (
        ("nothing reused: unseen text", 0, False),
        ("turns before seen, words reused", 0, True),
        ("turns before seen, segments reused", SEGMENT_CACHE_BYTES, True),
    ):
        model = open_model(folder, segment_cache_bytes=segment_cache_bytes)
        # A thread's first encode compiles.
        model.tokenizer.encode("Hello world, 12345! " * 50)
        runs = [_last_turn(model, n_turns, seen, seed) for seed in range(repeats)]
        microseconds, tokens = (median(values) for values in zip(*runs, strict=True))
        costs.append({"way": way, "us": microseconds, "tokens": tokens})
    return costs


def _last_turn(model: Model, n_turns: int, seen: bool, seed: int) -> tuple[float, int]:
    said = turns(random.Random(f"reuse {seed}"), n_turns)
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
