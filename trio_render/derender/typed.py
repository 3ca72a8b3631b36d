"""Typed request -> typed answer, as jobs for the offloader: what `derender.wire` does, without JSON."""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol.chat import ChatCompletion
from ..protocol.completion import Completion
from ..protocol.derender import DerenderChatRequest, DerenderCompletionRequest
from ..protocol.tokenize import DetokenizeRequest, DetokenizeResponse
from ..workspace import Checkpoint, Workspace
from .chat import derender_chat
from .completion import derender_completion
from .detokenize_ids import detokenize_ids

__all__ = ["chat", "completion", "detokenize"]


def chat(
    workspace: Workspace, checkpoint: Checkpoint, body: Sequence[bytes], request: DerenderChatRequest
) -> ChatCompletion:
    """Return `derender_chat` of ``request``."""
    return derender_chat(workspace.model, workspace.policy, workspace.fragments, request, checkpoint)


def completion(
    workspace: Workspace, checkpoint: Checkpoint, body: Sequence[bytes], request: DerenderCompletionRequest
) -> Completion:
    """Return `derender_completion` of ``request``."""
    return derender_completion(workspace.model, workspace.policy, request, checkpoint)


def detokenize(
    workspace: Workspace, checkpoint: Checkpoint, body: Sequence[bytes], request: DetokenizeRequest
) -> DetokenizeResponse:
    """Return `detokenize_ids` of ``request``."""
    checkpoint()
    return detokenize_ids(workspace.model, workspace.policy, request)
