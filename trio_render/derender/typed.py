"""Typed request -> typed answer, as jobs for the offloader: what `derender.wire` does, without JSON."""

from __future__ import annotations

from ..protocol.chat import ChatCompletion
from ..protocol.completion import Completion
from ..protocol.derender import DerenderChatRequest, DerenderCompletionRequest
from ..protocol.stream import (
    ChatChunk,
    ChatStreamRequest,
    CompletionChunk,
    CompletionStreamRequest,
    GenerateChunk,
)
from ..protocol.tokenize import DetokenizeRequest, DetokenizeResponse
from ..workspace import Body, Checkpoint, Workspace
from .chat import derender_chat
from .completion import derender_completion
from .detokenize_ids import detokenize_ids
from .stream_chat import chat_chunk
from .stream_completion import completion_chunk
from .stream_plan import States, StreamPlan, open_chat_stream, open_completion_stream
from .stream_state import StreamState

__all__ = [
    "chat",
    "chat_step",
    "chat_stream",
    "completion",
    "completion_step",
    "completion_stream",
    "detokenize",
]


def chat(
    workspace: Workspace, checkpoint: Checkpoint, body: Body, request: DerenderChatRequest
) -> ChatCompletion:
    """Return `derender_chat` of ``request``."""
    return derender_chat(workspace.model, workspace.policy, workspace.fragments, request, checkpoint)


def completion(
    workspace: Workspace, checkpoint: Checkpoint, body: Body, request: DerenderCompletionRequest
) -> Completion:
    """Return `derender_completion` of ``request``."""
    return derender_completion(workspace.model, workspace.policy, request, checkpoint)


def detokenize(
    workspace: Workspace, checkpoint: Checkpoint, body: Body, request: DetokenizeRequest
) -> DetokenizeResponse:
    """Return `detokenize_ids` of ``request``."""
    checkpoint()
    return detokenize_ids(workspace.model, workspace.policy, request)


def chat_stream(
    workspace: Workspace, checkpoint: Checkpoint, body: Body, request: ChatStreamRequest
) -> StreamPlan:
    """Return `open_chat_stream` of ``request``."""
    checkpoint()
    return open_chat_stream(workspace.model, workspace.policy, request)


def completion_stream(
    workspace: Workspace, checkpoint: Checkpoint, body: Body, request: CompletionStreamRequest
) -> StreamPlan:
    """Return `open_completion_stream` of ``request``."""
    checkpoint()
    return open_completion_stream(workspace.model, workspace.policy, request)


def chat_step(
    workspace: Workspace,
    checkpoint: Checkpoint,
    body: Body,
    plan: StreamPlan,
    states: States,
    chunk: GenerateChunk,
) -> tuple[ChatChunk, dict[int, StreamState]]:
    """Return `chat_chunk` of ``chunk``."""
    model, policy = workspace.model, workspace.policy
    return chat_chunk(model, policy, workspace.fragments, plan, states, chunk, checkpoint)


def completion_step(
    workspace: Workspace,
    checkpoint: Checkpoint,
    body: Body,
    plan: StreamPlan,
    states: States,
    chunk: GenerateChunk,
) -> tuple[CompletionChunk, dict[int, StreamState]]:
    """Return `completion_chunk` of ``chunk``."""
    return completion_chunk(workspace.model, workspace.policy, plan, states, chunk, checkpoint)
