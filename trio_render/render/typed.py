"""Typed request -> typed answer, as jobs for the offloader: what `render.wire` does, without JSON."""

from __future__ import annotations

from typing import NamedTuple

from ..protocol.chat import ChatRequest
from ..protocol.completion import CompletionRequest
from ..protocol.generate import GenerateRequest
from ..protocol.tokenize import TokenizeChatRequest, TokenizeRequest, TokenizeResponse
from ..workspace import Body, Checkpoint, Workspace
from .chat import render_chat
from .completion import plan_completion, render_prompt
from .tokenize import tokenize

__all__ = ["CompletionResult", "chat", "completion", "tokenize_request"]


def chat(workspace: Workspace, checkpoint: Checkpoint, body: Body, request: ChatRequest) -> GenerateRequest:
    """Return `render_chat` of ``request``."""
    return render_chat(workspace.model, workspace.policy, request, checkpoint)


class CompletionResult(NamedTuple):
    """The prompts of a request; or the base64 texts of prompts given as embeddings, and nothing done yet."""

    rendered: list[GenerateRequest]
    embeds: list[str]


def completion(
    workspace: Workspace, checkpoint: Checkpoint, body: Body, request: CompletionRequest
) -> CompletionResult:
    """Return `render_prompt` of each prompt of ``request``."""
    plan = plan_completion(workspace.model, workspace.policy, request)
    rendered: list[GenerateRequest] = []
    if plan.embeds:
        return CompletionResult(rendered, plan.embeds)
    for index in range(plan.total):
        checkpoint()
        rendered.append(render_prompt(workspace.model, plan, index))
    return CompletionResult(rendered, [])


def tokenize_request(
    workspace: Workspace,
    checkpoint: Checkpoint,
    body: Body,
    request: TokenizeRequest | TokenizeChatRequest,
) -> TokenizeResponse:
    """Return `tokenize` of ``request``."""
    return tokenize(workspace.model, workspace.policy, request, checkpoint)
