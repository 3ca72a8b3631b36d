"""An engine's answers -> what clients of the front end get, as jobs for the offloader."""

from __future__ import annotations

import msgspec

from ..protocol.chat import ChatCompletion
from ..protocol.completion import Completion
from ..protocol.decoding import encode
from ..protocol.derender import DerenderChatRequest, DerenderCompletionRequest
from ..protocol.front import Echo
from ..protocol.stream import CompletionStreamRequest, GenerateChunk
from ..workspace import Body, Checkpoint, Workspace
from .chat import derender_chat
from .completion import completion_candidates, derender_completion
from .echo import echo_logprobs, place_behind, with_echoes
from .stream_plan import StreamPlan, open_completion_stream

__all__ = [
    "chat_answer",
    "chat_answer_json",
    "completion_answer",
    "completion_answer_json",
    "echoed_logprobs",
    "echoed_stream",
]


def chat_answer(
    workspace: Workspace,
    checkpoint: Checkpoint,
    body: Body,
    request: DerenderChatRequest,
    echo: Echo | None,
) -> ChatCompletion:
    """Return `derender_chat` of ``request``, behind ``echo``."""
    answer = derender_chat(workspace.model, workspace.policy, workspace.fragments, request, checkpoint)
    if echo is None:
        return answer
    replace = msgspec.structs.replace
    choices = [
        replace(choice, message=replace(choice.message, content=echo.text + (choice.message.content or "")))
        for choice in answer.choices
    ]
    return replace(answer, choices=choices)


def chat_answer_json(
    workspace: Workspace,
    checkpoint: Checkpoint,
    body: Body,
    request: DerenderChatRequest,
    echo: Echo | None,
) -> bytes:
    """Return `chat_answer` as JSON."""
    return encode(chat_answer(workspace, checkpoint, body, request, echo))


def completion_answer(
    workspace: Workspace,
    checkpoint: Checkpoint,
    body: Body,
    request: DerenderCompletionRequest,
    echoes: list[Echo] | None,
) -> Completion:
    """Return `derender_completion` of ``request``, each answer behind its echo."""
    model, policy = workspace.model, workspace.policy
    answer = derender_completion(model, policy, request, checkpoint)
    if echoes is None:
        return answer
    n_candidates = completion_candidates(request.completion_request, policy)
    return with_echoes(model, answer, request.generate_responses, echoes, n_candidates, checkpoint)


def completion_answer_json(
    workspace: Workspace,
    checkpoint: Checkpoint,
    body: Body,
    request: DerenderCompletionRequest,
    echoes: list[Echo] | None,
) -> bytes:
    """Return `completion_answer` as JSON."""
    return encode(completion_answer(workspace, checkpoint, body, request, echoes))


def echoed_stream(
    workspace: Workspace,
    checkpoint: Checkpoint,
    body: Body,
    request: CompletionStreamRequest,
    echo: Echo,
) -> StreamPlan:
    """Return `open_completion_stream` of ``request``, whose first token stands behind ``echo``."""
    checkpoint()
    plan = open_completion_stream(workspace.model, workspace.policy, request)
    place = place_behind(workspace.model, echo.token_ids)
    start = msgspec.structs.replace(plan.start, place_held=place.held, offset=place.offset)
    return msgspec.structs.replace(plan, start=start)


def echoed_logprobs(
    workspace: Workspace,
    checkpoint: Checkpoint,
    body: Body,
    request: CompletionStreamRequest,
    echo: Echo,
    chunk: GenerateChunk,
) -> msgspec.Raw:
    """Return the logprobs of ``echo``, which came with an answer's first chunk."""
    n_candidates = completion_candidates(request.completion_request, workspace.policy)
    return echo_logprobs(workspace.model, echo, chunk.prompt_logprobs, n_candidates, checkpoint)
