"""Requests of the front end -> prompts for its engine, as jobs for the offloader."""

from __future__ import annotations

from typing import Any

from ..model.loading import Model
from ..protocol.chat import ChatRequest
from ..protocol.completion import CompletionRequest
from ..protocol.decoding import decode_body
from ..protocol.front import ChatPrompt, CompletionPrompts, Echo
from ..protocol.generate import GenerateRequest
from ..workspace import Body, Checkpoint, Workspace
from .chat import render_chat
from .completion import CompletionPlan, plan_completion, render_prompt

__all__ = ["chat_prompt", "completion_prompts"]


def chat_prompt(
    workspace: Workspace,
    checkpoint: Checkpoint,
    body: Body,
    base_id: str | None = None,
    request: ChatRequest | None = None,
) -> ChatPrompt:
    """Return a chat request's prompt.

    Args:
        base_id: see `render_chat`.
        request: instead of ``body``.

    Raises: what `decode_body` and `render_chat` raise.
    """
    if request is None:
        request = decode_body(b"".join(body), ChatRequest)
    generate = render_chat(workspace.model, workspace.policy, request, checkpoint, base_id)
    return ChatPrompt(request=request, generate=generate, echo=_chat_echo(request, generate))


def _chat_echo(request: ChatRequest, generate: GenerateRequest) -> Echo | None:
    """Return the assistant's last message, which the answer continues."""
    last: dict[str, Any] = request.messages[-1]
    text = last.get("content")
    if not request.echo or last.get("role") != "assistant" or not isinstance(text, str):
        return None
    return Echo(text=text, token_ids=generate.token_ids)


def completion_prompts(
    workspace: Workspace,
    checkpoint: Checkpoint,
    body: Body,
    base_id: str | None = None,
    request: CompletionRequest | None = None,
) -> CompletionPrompts:
    """Return a completion request's prompts; those given as embeddings are not looked at.

    Arguments as for `chat_prompt`.

    Raises: what `decode_body`, `plan_completion` and `render_prompt` raise.
    """
    if request is None:
        request = decode_body(b"".join(body), CompletionRequest)
    model = workspace.model
    plan = plan_completion(model, workspace.policy, request, base_id)
    rendered: list[GenerateRequest] = []
    for index in range(plan.total):
        checkpoint()
        rendered.append(render_prompt(model, plan, index))
    echoes = None
    if request.echo:
        echoes = [_echo(model, plan, index, generate) for index, generate in enumerate(rendered)]
    return CompletionPrompts(request=request, generate=rendered, echoes=echoes, plan=plan, embeds=plan.embeds)


def _echo(model: Model, plan: CompletionPlan, index: int, generate: GenerateRequest) -> Echo:
    prompt = plan.prompts[index]
    if isinstance(prompt, str) and plan.request.truncate_prompt_tokens is None:
        text = prompt
    else:
        table = model.tokenizer.table
        hidden = table.special_ids if generate.sampling_params.skip_special_tokens else ()
        shown = b"".join(table.byte_values[i] for i in generate.token_ids if i not in hidden)
        text = shown.decode("utf-8", "replace")
    return Echo(text=text, token_ids=generate.token_ids, alone=plan.request.max_tokens == 0)
