"""The completion stream: a chunk of an engine's output -> the chunk that its client gets. A pure step.

It costs what the chunk costs, whatever came before.
"""

from __future__ import annotations

from collections.abc import Callable

from ..model.loading import Model
from ..policy import Policy
from ..protocol.stream import ChunkChoice, CompletionChunk, CompletionChunkChoice, GenerateChunk
from .bounds import check_chunk
from .logprobs import Place, completion_logprobs
from .stream_choice import next_shown
from .stream_plan import States, StreamPlan, begun, state_of
from .stream_state import StreamState
from .usage import streamed_usage

__all__ = ["completion_chunk"]


def completion_chunk(
    model: Model,
    policy: Policy,
    plan: StreamPlan,
    states: States,
    chunk: GenerateChunk,
    checkpoint: Callable[[], None],
) -> tuple[CompletionChunk, dict[int, StreamState]]:
    """Return the completion chunk for ``chunk``, and the states that it has changed.

    Arguments and errors as for `chat_chunk`.
    """
    check_chunk(model, chunk, plan.n_prompt, plan.candidate_bound)
    changed = begun(model, plan, states, chunk)
    prompt_ids = chunk.prompt_token_ids if plan.returns_ids else None
    choices = []
    for given in chunk.choices:
        checkpoint()
        state = state_of(policy, states, changed, given.index)
        choice, changed[given.index] = _choice(model, plan, state, given, prompt_ids, checkpoint)
        choices.append(choice)
    answer = CompletionChunk(
        id=chunk.request_id,
        object="text_completion",
        created=next(iter(states.values())).created,
        model=policy.answer_name(model.name),
        choices=choices,
        usage=streamed_usage(chunk.usage, plan.prompt_tokens),
        kv_transfer_params=chunk.kv_transfer_params,
        ec_transfer_params=chunk.ec_transfer_params,
        weight_version=chunk.weight_version,
        metrics=chunk.metrics,
    )
    return answer, changed


def _choice(
    model: Model,
    plan: StreamPlan,
    state: StreamState,
    given: ChunkChoice,
    prompt_ids: list[int] | None,
    checkpoint: Callable[[], None],
) -> tuple[CompletionChunkChoice, StreamState]:
    if state.ended:
        return CompletionChunkChoice(index=given.index, text="", finish_reason=None), state
    place = Place(model, state.place_held, state.offset)
    logprobs = None
    content = None if given.logprobs is None else given.logprobs.content or []
    if content is not None:
        logprobs = completion_logprobs(model, content, plan.n_candidates, checkpoint, place)
    if not content:
        place.skip(given.token_ids or ())
    shown, after = next_shown(model, plan.rules, state, given, place, checkpoint)
    choice = CompletionChunkChoice(
        index=given.index,
        text=shown.text,
        finish_reason=shown.finish_reason,
        logprobs=logprobs,
        stop_reason=shown.stop_reason,
        token_ids=given.token_ids if plan.returns_ids else None,
        prompt_token_ids=prompt_ids,
        routed_experts=given.routed_experts,
    )
    return choice, after
