"""What all chunks of a stream have in common, read once, and the states of its choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..errors import InvalidRequest, MalformedRequest
from ..model.loading import Model
from ..policy import Policy
from ..protocol.sampling import SamplingFields
from ..protocol.stream import ChatStreamRequest, CompletionStreamRequest, GenerateChunk
from ..render.completion import check_completion_fields
from .answer import AnswerPlan, check_parser
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
        answer: how a chat's text is parsed; ``None``: all of it is content.
    """

    start: StreamState
    rules: StopRules
    n_prompt: int
    n_candidates: int | None
    candidate_bound: int | None
    returns_ids: bool
    prompt_tokens: int | None
    answer: AnswerPlan | None


def open_chat_stream(
    model: Model, policy: Policy, request: ChatStreamRequest, start: StreamState | None = None
) -> StreamPlan:
    """Return the plan of a chat stream.

    Args:
        start: the state of a choice, if it is not to start now.

    Raises:
        ModelNotFound: ``model`` is not served here.
        InvalidRequest: a prompt longer than the context, ids outside the vocabulary, stop strings that are
            none or too long, too many logprobs; no request where the server parses answers.
        MalformedRequest: (``body.stream_state``) ``start`` is none of a stream that is parsed like this.
    """
    given = request.chat_request
    answer = AnswerPlan.of(policy, given)
    return _plan(model, policy, request, given, chat_candidates(given, policy), start, answer)


def open_completion_stream(
    model: Model, policy: Policy, request: CompletionStreamRequest, start: StreamState | None = None
) -> StreamPlan:
    """Return the plan of a completion stream. Arguments and errors as for `open_chat_stream`."""
    given = request.completion_request
    if given is not None:
        check_completion_fields(given, policy)
    return _plan(model, policy, request, given, completion_candidates(given, policy), start, None)


def _plan(
    model: Model,
    policy: Policy,
    stream: ChatStreamRequest | CompletionStreamRequest,
    request: SamplingFields | None,
    n_candidates: int | None,
    start: StreamState | None,
    answer: AnswerPlan | None,
) -> StreamPlan:
    policy.check_model(stream.model)
    check_prompt_ids(model, stream.prompt_token_ids, "body.prompt_token_ids")
    check_prompt_tokens(stream.prompt_tokens, "body.prompt_tokens")
    rules = StopRules.of(request, model)
    check_stop_lengths(rules)
    if answer is not None:
        rules = answer.rules(rules)
    start = start or new_state(model)
    if start.started and not start.ended:
        check_parser(answer, start.parser)
    plan = StreamPlan(
        start=start,
        rules=rules,
        n_prompt=len(stream.prompt_token_ids or ()),
        n_candidates=n_candidates,
        candidate_bound=candidate_bound(policy, request),
        returns_ids=request is not None and bool(request.return_token_ids),
        prompt_tokens=stream.prompt_tokens,
        answer=answer,
    )
    start = _behind(model, plan, start, stream.prompt_token_ids)
    return msgspec.structs.replace(plan, start=start)


def _behind(
    model: Model, plan: StreamPlan, state: StreamState, prompt_ids: Sequence[int] | None
) -> StreamState:
    """Return a state that has not started yet behind ``prompt_ids``, or their tail; others as they are."""
    if state.started or prompt_ids is None:
        return state
    skip = plan.rules.skip_special_tokens
    state = start_behind(model, state, prompt_ids, skip_special_tokens=skip)
    if plan.answer is None:
        return state
    return msgspec.structs.replace(state, parser=plan.answer.start(model, prompt_ids))


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
    return {_START: _behind(model, plan, start, prompt_ids)}


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
