"""The demo model with its weights, loaded once in a test run, and what asks it for an answer."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from opened_models import never
from transformers import LlamaConfig, LlamaForCausalLM

from trio_render import (
    GenerateChunk,
    GenerateRequest,
    SamplingParams,
    TokenLogprob,
    Workspace,
    open_workspace,
)
from trio_render.engine.constraints import Grammars
from trio_render.engine.generation import generate_tokens
from trio_render.engine.weights import Weights, load_weights

QUESTION = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
STORY = "Once upon a time there was a"


@cache
def workspace() -> Workspace:
    return open_workspace("demo")


@cache
def weights() -> Weights:
    # Threads of PyTorch's own wait for each other at every operation: where cores are busy, for long.
    torch.set_num_threads(1)
    return load_weights("demo", "cpu", None)


@cache
def grammars() -> Grammars:
    return Grammars(workspace().model, weights().vocab_size)


def ids(text: str) -> list[int]:
    return workspace().model.tokenizer.encode(text)


def text(token_ids: Iterable[int]) -> str:
    values = workspace().model.tokenizer.table.byte_values
    return b"".join(values[i] for i in token_ids).decode()


def params(**fields: Any) -> SamplingParams:
    neutral = {
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "temperature": 0.0,
        "top_p": 1.0,
        "min_p": 0.0,
        "stop": [],
        "stop_token_ids": [],
        "bad_words": [],
        "output_kind": 1,
        "skip_reading_prefix_cache": False,
        "skip_clone": True,
    }
    return SamplingParams(**(neutral | fields))


def request(
    prompt: str | list[int] = STORY, *, outside: dict[str, Any] | None = None, **fields: Any
) -> GenerateRequest:
    """A request for ``prompt``; ``fields`` are sampling parameters, ``outside`` its other fields."""
    return GenerateRequest(
        request_id="r",
        token_ids=ids(prompt) if isinstance(prompt, str) else prompt,
        sampling_params=params(**fields),
        output_mode="tokens",
        **({"stream": True, "priority": 0} | (outside or {})),
    )


@dataclass
class Row:
    """One choice, joined."""

    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: Any = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    pieces: int = 0

    @property
    def text(self) -> str:
        return text(self.token_ids)


def joined(chunks: Iterable[GenerateChunk]) -> list[Row]:
    """The choices of an answer. Nothing may come behind a choice's end, and each must have one."""
    rows: dict[int, Row] = {}
    for chunk in chunks:
        assert chunk.request_id == "r"
        for choice in chunk.choices:
            row = rows.setdefault(choice.index, Row())
            assert row.finish_reason is None
            row.token_ids += choice.token_ids or []
            row.logprobs += (choice.logprobs.content or []) if choice.logprobs else []
            row.finish_reason, row.stop_reason = choice.finish_reason, choice.stop_reason
            row.pieces += 1
    assert all(row.finish_reason for row in rows.values())
    return [rows[index] for index in range(len(rows))]


def chunks_of(
    asked: GenerateRequest, embeds: torch.Tensor | None = None, checkpoint: Callable[[], None] = never
) -> list[GenerateChunk]:
    """What the engine's job tells, without an event loop."""
    told: list[GenerateChunk] = []
    generate_tokens(workspace(), checkpoint, (), told.append, weights(), grammars(), asked, embeds)
    return told


def answer(prompt: str | list[int] = STORY, **fields: Any) -> Row:
    """The only choice of an answer."""
    [row] = joined(chunks_of(request(prompt, **fields)))
    return row


def scores(token_ids: list[int]) -> torch.Tensor:
    """The model's scores behind each token, (places, vocabulary), from one plain forward pass."""
    with torch.no_grad():
        found: torch.Tensor = weights().model(torch.tensor([token_ids])).logits[0].float()
    return found


def best_by_hand(
    prompt: list[int], output: list[int], change: Callable[[torch.Tensor, list[int]], torch.Tensor]
) -> list[int]:
    """The best token in each place of ``output``, from what ``change`` makes of the model's scores there.

    ``change`` gets a place's scores and the output before it.
    """
    places = scores(prompt + output[:-1])[len(prompt) - 1 :]
    return [int(change(place, output[:n]).argmax()) for n, place in enumerate(places)]


def small_model(folder: Path) -> Path:
    """A folder with a model of random weights and the demo's vocabulary: loaded in no time."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=workspace().model.vocab_size,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
