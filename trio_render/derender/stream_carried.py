"""One chunk by itself, its state carried by the client: the reference's streaming protocol."""

from __future__ import annotations

from collections.abc import Callable

from ..model.loading import Model
from ..policy import Policy
from ..protocol.stream import (
    DerenderChatChunk,
    DerenderCompletionChunk,
    DerenderedChatChunk,
    DerenderedCompletionChunk,
)
from ..workspace import Workspace
from .bounds import check_one_choice
from .stream_chat import chat_chunk
from .stream_completion import completion_chunk
from .stream_plan import open_chat_stream, open_completion_stream
from .stream_seal import StreamKind, seal, unseal
from .stream_state import StreamState

__all__ = ["carried_chat_chunk", "carried_completion_chunk"]


def carried_chat_chunk(
    workspace: Workspace, body: DerenderChatChunk, checkpoint: Callable[[], None]
) -> DerenderedChatChunk:
    """Return the chat chunk for ``body``'s, and the state for the next one.

    Raises: what `open_chat_stream`, `unseal` and `chat_chunk` raise; `InvalidRequest` for several choices.
    """
    model, policy, chunk = workspace.model, workspace.policy, body.generate_chunk
    policy.check_model(body.model)
    check_one_choice(chunk)
    before = _carried(model, policy, body, "chat")
    plan = open_chat_stream(model, policy, body, before)
    states = {plan.start.index: plan.start}
    answer, changed = chat_chunk(model, policy, workspace.fragments, plan, states, chunk, checkpoint)
    after = _last(changed, plan.start)
    state = seal(after, policy.stream_state_key, "chat", chunk.request_id)
    return DerenderedChatChunk(chunk=answer, stream_state=state)


def carried_completion_chunk(
    workspace: Workspace, body: DerenderCompletionChunk, checkpoint: Callable[[], None]
) -> DerenderedCompletionChunk:
    """Return the completion chunk for ``body``'s, and the state for the next one. Raises likewise."""
    model, policy, chunk = workspace.model, workspace.policy, body.generate_chunk
    policy.check_model(body.model)
    check_one_choice(chunk)
    before = _carried(model, policy, body, "completion")
    plan = open_completion_stream(model, policy, body, before)
    states = {plan.start.index: plan.start}
    answer, changed = completion_chunk(model, policy, plan, states, chunk, checkpoint)
    after = _last(changed, plan.start)
    state = seal(after, policy.stream_state_key, "completion", chunk.request_id)
    return DerenderedCompletionChunk(chunk=answer, stream_state=state)


def _carried(
    model: Model, policy: Policy, body: DerenderChatChunk | DerenderCompletionChunk, kind: StreamKind
) -> StreamState | None:
    if body.stream_state is None:
        return None
    return unseal(body.stream_state, model, policy.stream_state_key, kind, body.generate_chunk.request_id)


def _last(changed: dict[int, StreamState], start: StreamState) -> StreamState:
    """Return the state of the chunk's choice, or what is kept where it has none."""
    return changed[max(changed)] if changed else start
