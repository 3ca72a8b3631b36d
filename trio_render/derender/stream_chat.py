"""The chat stream: a chunk of an engine's output -> the chunk that its client gets. A pure step.

It costs what the chunk costs, whatever came before.
"""

from __future__ import annotations

from collections.abc import Callable

from ..model.fragments import FragmentCache
from ..model.loading import Model
from ..policy import Policy
from ..protocol.stream import ChatChunk, ChatChunkChoice, ChatDelta, ChunkChoice, GenerateChunk
from .bounds import check_chunk
from .logprobs import Place, chat_logprobs
from .stream_choice import Shown, next_shown
from .stream_plan import States, StreamPlan, begun, state_of
from .stream_state import StreamState
from .usage import streamed_usage

__all__ = ["chat_chunk"]


def chat_chunk(
    model: Model,
    policy: Policy,
    cache: FragmentCache,
    plan: StreamPlan,
    states: States,
    chunk: GenerateChunk,
    checkpoint: Callable[[], None],
) -> tuple[ChatChunk, dict[int, StreamState]]:
    """Return the chat chunk for ``chunk``, and the states that it has changed.

    Args:
        states: see `States`; not empty.
        checkpoint: called once per choice and per batch of logprobs; what it raises ends the work.

    Raises:
        MalformedRequest: see `check_chunk`, `state_of`; a ``usage`` without numbers.
        InvalidRequest: see `check_chunk`, `state_of`; logprobs that are none.
    """
    check_chunk(model, chunk, plan.n_prompt, plan.candidate_bound)
    changed = begun(model, plan, states, chunk)
    choices = []
    for given in chunk.choices:
        checkpoint()
        state = state_of(policy, states, changed, given.index)
        choice, changed[given.index] = _choice(model, cache, plan, state, given, checkpoint)
        choices.append(choice)
    answer = ChatChunk(
        id=chunk.request_id,
        object="chat.completion.chunk",
        created=next(iter(states.values())).created,
        model=policy.answer_name(model.name),
        choices=choices,
        usage=streamed_usage(chunk.usage, plan.prompt_tokens),
        prompt_token_ids=chunk.prompt_token_ids if plan.returns_ids else None,
        kv_transfer_params=chunk.kv_transfer_params,
        ec_transfer_params=chunk.ec_transfer_params,
        weight_version=chunk.weight_version,
        metrics=chunk.metrics,
    )
    return answer, changed


def _choice(
    model: Model,
    cache: FragmentCache,
    plan: StreamPlan,
    state: StreamState,
    given: ChunkChoice,
    checkpoint: Callable[[], None],
) -> tuple[ChatChunkChoice, StreamState]:
    if state.ended:
        return ChatChunkChoice(index=given.index, delta=ChatDelta(), finish_reason=None), state
    place = Place(model, state.place_held, state.offset)
    logprobs = None
    content = None if given.logprobs is None else given.logprobs.content or []
    if content is not None:
        logprobs = chat_logprobs(model, cache, content, plan.n_candidates, checkpoint, place)
    if not content:
        place.skip(given.token_ids or ())
    shown, after = next_shown(model, plan.rules, state, given, place, checkpoint)
    choice = ChatChunkChoice(
        index=given.index,
        delta=_delta(state, shown),
        finish_reason=shown.finish_reason,
        logprobs=logprobs,
        stop_reason=shown.stop_reason,
        token_ids=given.token_ids if plan.returns_ids else None,
        routed_experts=given.routed_experts,
    )
    return choice, after


def _delta(state: StreamState, shown: Shown) -> ChatDelta:
    """Return what visible text adds to the message: all of it is content."""
    return ChatDelta(role=None if state.started else "assistant", content=shown.text or None)
