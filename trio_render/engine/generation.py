"""One request through transformers' ``generate``: the job that runs in a worker thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import EngineError, InvalidRequest, RenderError
from ..offload.jobs import Body, Checkpoint, Job
from ..protocol.generate import GenerateRequest
from ..protocol.stream import GenerateChunk
from ..workspace import Workspace
from .constraints import Grammars, masked
from .logprobs import PromptPlace, StepLogprobs, prompt_places
from .requests import output_room
from .sampling import checked, processors
from .steps import Row, Steps
from .weights import Weights, cpu_threads

if TYPE_CHECKING:
    import torch

__all__ = ["GENERATE"]

_PIECE = 128
"""Tokens of a prompt between two checkpoints."""


def generate_tokens(
    workspace: Workspace,
    checkpoint: Checkpoint,
    body: Body,
    tell: Callable[[GenerateChunk], None],
    weights: Weights,
    grammars: Grammars,
    request: GenerateRequest,
    embeds: torch.Tensor | None,
) -> None:
    """Generate the answer to a checked request, telling of each step's tokens.

    Raises:
        InvalidRequest: rules that can't be kept: a malformed constraint, say.
        EngineError: the model failed.
    """
    import torch

    try:
        with torch.no_grad(), _threads_of_a_step():
            _generate(workspace, checkpoint, tell, weights, grammars, request, embeds)
    except RenderError:
        raise
    except Exception as error:
        raise EngineError(f"The model failed: {type(error).__name__}.") from error


GENERATE: Job[None] = Job(generate_tokens, kind="engine", keeps_gil=False, stays=True)


def _generate(
    workspace: Workspace,
    checkpoint: Checkpoint,
    tell: Callable[[GenerateChunk], None],
    weights: Weights,
    grammars: Grammars,
    request: GenerateRequest,
    embeds: torch.Tensor | None,
) -> None:
    import torch
    from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

    params, model = request.sampling_params, workspace.model
    room = output_room(request, embeds, model)
    constraints = grammars.constraints(request, workspace.policy)
    rows = [
        Row(i, model, request, room, None if constraints is None else constraints[i]) for i in range(params.n)
    ]

    def is_open(row: int) -> bool:
        return rows[row].is_open

    name, prompt = _prompt(weights, request, embeds)
    length = prompt.shape[1]
    ids_before = 0 if embeds is not None else length
    stop_ids = {i for i in (*model.eos_ids, *params.stop_token_ids) if i < weights.vocab_size}
    chain = processors(params, model.tokenizer, stop_ids, ids_before, weights.vocab_size, weights.device)
    if constraints is not None:
        chain.insert(0, masked(constraints, is_open))
    logprobs = None
    if params.logprobs is not None or params.logprob_token_ids is not None:
        logprobs = StepLogprobs(params.logprobs or 0, params.logprob_token_ids)
        chain.insert(0, logprobs)
    cache, places = _read_prompt(weights, name, prompt, request, checkpoint)
    if params.n > 1:
        cache.batch_repeat_interleave(params.n)
    config = GenerationConfig(max_new_tokens=room, do_sample=False, pad_token_id=0)  # type: ignore[no-untyped-call]
    steps = Steps(request, rows, logprobs, length, places, checkpoint, tell)
    weights.model.generate(
        **{name: prompt.expand(params.n, *prompt.shape[1:]), weights.cache_name: cache},
        attention_mask=torch.ones((params.n, length), dtype=torch.long, device=prompt.device),
        generation_config=config,
        logits_processor=LogitsProcessorList([*chain, checked(is_open)]),
        stopping_criteria=StoppingCriteriaList([steps]),
    )
    steps.end()


def _prompt(
    weights: Weights, request: GenerateRequest, embeds: torch.Tensor | None
) -> tuple[str, torch.Tensor]:
    """Return what the model calls the prompt, and the prompt as a batch of one."""
    import torch

    if embeds is None:
        return "input_ids", torch.tensor([request.token_ids], device=weights.device)
    given = embeds.detach().to(device=weights.device, dtype=weights.dtype)
    if not bool(given.isfinite().all()):
        raise InvalidRequest("prompt_embeds must hold finite numbers.", "prompt_embeds")
    return "inputs_embeds", given[None]


def _read_prompt(
    weights: Weights, name: str, prompt: torch.Tensor, request: GenerateRequest, checkpoint: Checkpoint
) -> tuple[Any, list[PromptPlace | None] | None]:
    """Return the cache behind all of a prompt but its last token, and the prompt's logprobs if asked for.

    ``generate`` reads the last one. Reading the others here, piece by piece, is what lets a caller go while
    a long prompt is read, reads it once for all rows, and is where its logprobs are seen.
    """
    from transformers import DynamicCache

    count = request.sampling_params.prompt_logprobs
    cache = DynamicCache(config=weights.model.config)
    places: list[PromptPlace | None] = [None]
    last = prompt.shape[1] - 1
    for start in range(0, last, _PIECE):
        checkpoint()
        end = min(start + _PIECE, last)
        output = weights.model(
            **{name: prompt[:, start:end], weights.cache_name: cache},
            use_cache=True,
            logits_to_keep=1 if count is None else 0,
        )
        if count is not None:
            places += prompt_places(output.logits[0], request.token_ids[start + 1 : end + 1], count)
    return cache, None if count is None else places


@contextmanager
def _threads_of_a_step() -> Iterator[None]:
    """Let PyTorch use several cores, in this thread, for the length of the block.

    A server keeps it to one elsewhere, where a tensor is only read.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(cpu_threads())
    try:
        yield
    finally:
        torch.set_num_threads(before)
