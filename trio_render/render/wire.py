"""Body bytes -> answer bytes: one job per request, so that the event loop never sees a document.

Jobs take ``(workspace, checkpoint, body, *args)``: what they work with, what to call once per millisecond
of work (it raises when the caller has gone), and the request's body in chunks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from ..protocol.chat import ChatRequest
from ..protocol.completion import CompletionRequest
from ..protocol.decoding import decode_body, encode
from ..protocol.generate import GenerateRequest
from ..protocol.tokenize import TokenizeChatRequest, TokenizeRequest
from ..workspace import Body, Checkpoint, Workspace
from .chat import render_chat
from .completion import CompletionPlan, plan_completion, render_prompt
from .tokenize import tokenize

__all__ = ["CompletionStart", "chat_json", "completion_json", "completion_start", "tokenize_json"]

_GROUP_S = 0.004
"""What a group of prompts should cost: a hop costs 0.08 ms, and a second group only pays from some ms on."""


class _Kind(msgspec.Struct):
    messages: msgspec.Raw | UnsetType = UNSET


def chat_json(workspace: Workspace, checkpoint: Checkpoint, body: Body, base_id: str | None = None) -> bytes:
    """Return the JSON answer to a chat render body. Raises what `decode_body` and `render_chat` raise."""
    request = decode_body(b"".join(body), ChatRequest)
    return encode(render_chat(workspace.model, workspace.policy, request, checkpoint, base_id))


def tokenize_json(workspace: Workspace, checkpoint: Checkpoint, body: Body) -> bytes:
    """Return the JSON answer to a tokenize body. Raises what `decode_body` and `tokenize` raise."""
    data = b"".join(body)
    is_chat = decode_body(data, _Kind).messages is not UNSET
    request = decode_body(data, TokenizeChatRequest) if is_chat else decode_body(data, TokenizeRequest)
    return encode(tokenize(workspace.model, workspace.policy, request, checkpoint))


class CompletionStart(NamedTuple):
    """What the first job of a completion body has done: some prompts' JSON, and plans of those left.

    With ``embeds``, the base64 texts of prompts given as embeddings, it has checked the request, no more.
    """

    done: bytes
    left: list[CompletionPlan]
    embeds: list[str]


def completion_start(
    workspace: Workspace, checkpoint: Checkpoint, body: Body, base_id: str | None = None
) -> CompletionStart:
    """Decode a completion body and render prompts until they have cost a group's worth.

    What is left is cut into groups of about that cost, by the prompts' sizes and the speed just seen;
    a small rest is done here as well.

    Raises: what `decode_body`, `plan_completion` and `render_prompt` raise.
    """
    model = workspace.model
    request = decode_body(b"".join(body), CompletionRequest)
    plan = plan_completion(model, workspace.policy, request, base_id)
    if plan.embeds:
        return CompletionStart(b"", [], plan.embeds)
    began = time.perf_counter()
    rendered: list[GenerateRequest] = []
    chars = 0
    for index in range(plan.total):
        checkpoint()
        rendered.append(render_prompt(model, plan, index))
        chars += plan.size(index) + 1
        spent = time.perf_counter() - began
        if spent >= _GROUP_S and index + 1 < plan.total:
            groups = _groups(plan, index + 1, int(chars * _GROUP_S / spent) + 1)
            if len(groups) > 1:
                return CompletionStart(_elements(rendered), [plan.part(group) for group in groups], [])
            began, chars = time.perf_counter(), 0
    return CompletionStart(_elements(rendered), [], [])


def completion_json(workspace: Workspace, checkpoint: Checkpoint, body: Body, plan: CompletionPlan) -> bytes:
    """Return the JSON elements of a plan's prompts, without the brackets around them."""
    rendered = []
    for index in range(len(plan.prompts)):
        checkpoint()
        rendered.append(render_prompt(workspace.model, plan, index))
    return _elements(rendered)


def _groups(plan: CompletionPlan, first: int, chars_per_group: int) -> list[range]:
    groups = []
    start, chars = first, 0
    for index in range(first, plan.total):
        chars += plan.size(index) + 1
        if chars >= chars_per_group:
            groups.append(range(start, index + 1))
            start, chars = index + 1, 0
    if start < plan.total:
        groups.append(range(start, plan.total))
    return groups


def _elements(rendered: Sequence[GenerateRequest]) -> bytes:
    return encode(rendered)[1:-1]
