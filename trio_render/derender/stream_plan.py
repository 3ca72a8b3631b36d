"""What all chunks of a stream have in common, read once, and the states of its choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..errors import InvalidRequest, MalformedRequest
from ..model.loading import Model
from ..policy import Policy
from ..protocol.stream import ChatStreamRequest, CompletionStreamRequest, GenerateChunk
from ..render.completion import check_completion_fields
from .bounds import candidate_bound, check_prompt_ids, check_prompt_tokens
from .chat import chat_candidates
from .completion import completion_candidates
from .stop import StopRules
from .stream_state import StreamState, new_state, start_behind
from .stream_stop import check_stop_lengths

__all__ = ["States", "StreamPlan", "begun", "open_chat_stream", "open_completion_stream", "state_of"]

States = Mapping[int, StreamState]
"""By the choice's index; at `_START` that of choices that have not begun."""

_START = -1


class StreamPlan(msgspec.Struct, frozen=True):
    """What all chunks of a stream have in common.

    Attributes:
        start: the state of a choice that has not begun, behind the prompt if that is known.
        n_prompt: ids of the prompt that came with the request.
        n_candidates: candidates shown of a place; ``None`` is all of them.
        candidate_bound: more candidates of a place are refused; ``None`` is no bound.
        prompt_tokens: instead of the engine's count in ``usage``.
    """

    start: StreamState
    rules: StopRules
    n_prompt: int
    n_candidates: int | None
    candidate_bound: int | None
    returns_ids: bool
    prompt_tokens: int | None


def open_chat_stream(
    model: Model, policy: Policy, request: ChatStreamRequest, start: StreamState | None = None
) -> StreamPlan:
    """Return the plan of a chat stream.

    Args:
        start: the state of a choice, if it is not to start now.

    Raises:
        ModelNotFound: ``model`` is not served here.
        InvalidRequest: a prompt longer than the context, ids outside the vocabulary, stop strings that are
            none or too long, too many logprobs.
    """
    return _plan(model, policy, request, request.chat_request, chat_candidates, start)


def open_completion_stream(
    model: Model, policy: Policy, request: CompletionStreamRequest, start: StreamState | None = None
) -> StreamPlan:
    """Return the plan of a completion stream. Arguments and errors as for `open_chat_stream`."""
    if request.completion_request is not None:
        check_completion_fields(request.completion_request)
    return _plan(model, policy, request, request.completion_request, completion_candidates, start)


def _plan(
    model: Model,
    policy: Policy,
    stream: ChatStreamRequest | CompletionStreamRequest,
    request: Any,
    candidates: Callable[[Any, Policy], int | None],
    start: StreamState | None,
) -> StreamPlan:
    policy.check_model(stream.model)
    check_prompt_ids(model, stream.prompt_token_ids, "body.prompt_token_ids")
    check_prompt_tokens(stream.prompt_tokens, "body.prompt_tokens")
    rules = StopRules.of(request, model)
    check_stop_lengths(rules)
    skip = rules.skip_special_tokens
    start = start_behind(model, start or new_state(model), stream.prompt_token_ids, skip_special_tokens=skip)
    return StreamPlan(
        start=start,
        rules=rules,
        n_prompt=len(stream.prompt_token_ids or ()),
        n_candidates=candidates(request, policy),
        candidate_bound=candidate_bound(policy, request),
        returns_ids=request is not None and bool(request.return_token_ids),
        prompt_tokens=stream.prompt_tokens,
    )


def begun(model: Model, plan: StreamPlan, states: States, chunk: GenerateChunk) -> dict[int, StreamState]:
    """Return what ``chunk`` changes before its choices are looked at: it may bring the prompt.

    Raises:
        MalformedRequest: ids outside the vocabulary.
    """
    start = states.get(_START)
    prompt_ids = chunk.prompt_token_ids
    if start is None or plan.n_prompt or not prompt_ids:
        return {}
    check_prompt_ids(model, prompt_ids, "body.generate_chunk.prompt_token_ids")
    return {
        _START: start_behind(model, start, prompt_ids, skip_special_tokens=plan.rules.skip_special_tokens)
    }


def state_of(policy: Policy, states: States, changed: States, index: int) -> StreamState:
    """Return the state of a choice, which begins if it has none.

    Raises:
        MalformedRequest: (``body.stream_state``) it has none, and can't begin: its client carries the state
            of another choice.
        InvalidRequest: more choices than the policy allows.
    """
    state = changed.get(index) or states.get(index)
    if state is not None:
        return state
    start = changed.get(_START) or states.get(_START)
    if start is None:
        raise MalformedRequest("The stream_state is that of another choice.", "body.stream_state")
    if len(states) + len(changed) > policy.max_sequences + 1:
        raise InvalidRequest(f"At most {policy.max_sequences} choices.", "choices")
    return start
