"""Messages of an open stream -> its answers: bytes to bytes, as `derender.wire` does for whole bodies."""

from __future__ import annotations

from ..protocol.decoding import decode_body, encode
from ..protocol.stream import ChatStreamRequest, CompletionStreamRequest, GenerateChunk
from ..workspace import Body, Checkpoint, Workspace
from .stream_chat import chat_chunk
from .stream_completion import completion_chunk
from .stream_plan import States, StreamPlan, open_chat_stream, open_completion_stream
from .stream_state import StreamState

__all__ = ["chat_step_json", "chat_stream_json", "completion_step_json", "completion_stream_json"]


def chat_stream_json(workspace: Workspace, checkpoint: Checkpoint, body: Body) -> StreamPlan:
    """Return the plan for the JSON of a `ChatStreamRequest`. Raises what `open_chat_stream` raises."""
    request = decode_body(b"".join(body), ChatStreamRequest)
    checkpoint()
    return open_chat_stream(workspace.model, workspace.policy, request)


def completion_stream_json(workspace: Workspace, checkpoint: Checkpoint, body: Body) -> StreamPlan:
    """Return the plan for the JSON of a `CompletionStreamRequest`. Raises likewise."""
    request = decode_body(b"".join(body), CompletionStreamRequest)
    checkpoint()
    return open_completion_stream(workspace.model, workspace.policy, request)


def chat_step_json(
    workspace: Workspace, checkpoint: Checkpoint, body: Body, plan: StreamPlan, states: States
) -> tuple[bytes, dict[int, StreamState]]:
    """Return the JSON of the chat chunk for that of a `GenerateChunk`. Raises what `chat_chunk` raises."""
    chunk = decode_body(b"".join(body), GenerateChunk)
    checkpoint()
    model, policy = workspace.model, workspace.policy
    answer, changed = chat_chunk(model, policy, workspace.fragments, plan, states, chunk, checkpoint)
    return encode(answer), changed


def completion_step_json(
    workspace: Workspace, checkpoint: Checkpoint, body: Body, plan: StreamPlan, states: States
) -> tuple[bytes, dict[int, StreamState]]:
    """Return the JSON of the completion chunk for that of a `GenerateChunk`. Raises likewise."""
    chunk = decode_body(b"".join(body), GenerateChunk)
    checkpoint()
    answer, changed = completion_chunk(workspace.model, workspace.policy, plan, states, chunk, checkpoint)
    return encode(answer), changed
