"""The chat stream: a chunk of an engine's output -> the chunk that its client gets. A pure step.

It costs what the chunk costs, whatever came before.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..errors import InvalidRequest
from ..model.fragments import FragmentCache
from ..model.loading import Model
from ..parsing.state import ParserState
from ..policy import Policy
from ..protocol.stream import ChatChunk, ChatChunkChoice, ChatDelta, ChunkChoice, GenerateChunk
from .bounds import check_chunk
from .logprobs import Place, chat_logprobs
from .stream_choice import next_shown
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
    answer = plan.answer
    finish_reason = shown.finish_reason
    if answer is None:
        delta = ChatDelta(role=None if state.started else "assistant", content=shown.text or None)
    else:
        final = finish_reason is not None
        parser = _parser(state)
        delta, parser = answer.delta(parser, shown.text, started=state.started, final=final)
        finish_reason = answer.finish_reason(finish_reason, parser.n_calls)
        after = msgspec.structs.replace(after, parser=parser)
    hides = answer is not None and answer.hides_reasoning
    choice = ChatChunkChoice(
        index=given.index,
        delta=delta,
        finish_reason=finish_reason,
        logprobs=None if hides else logprobs,
        stop_reason=shown.stop_reason,
        token_ids=given.token_ids if plan.returns_ids and not hides else None,
        routed_experts=given.routed_experts,
    )
    return choice, after


def _parser(state: StreamState) -> ParserState:
    if state.parser is None:
        raise InvalidRequest(
            "This server parses answers, for which it needs the prompt's ids.", "prompt_token_ids"
        )
    return state.parser
