"""Body bytes -> answer bytes: one job per request, so that the event loop never sees a document."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from ..model.loading import Model
from ..policy import Policy
from ..protocol.chat import ChatRequest
from ..protocol.completion import CompletionRequest
from ..protocol.decoding import decode_body, encode
from ..protocol.tokenize import TokenizeChatRequest, TokenizeRequest
from .chat import render_chat
from .completion import CompletionPlan, plan_completion
from .tokenize import tokenize

__all__ = ["CompletionStart", "chat_json", "completion_json", "completion_start", "tokenize_json"]

_GROUP_S = 0.004
"""What a group of prompts should cost: a hop costs 0.08 ms, and a second group only pays from some ms on."""


class _Kind(msgspec.Struct):
    messages: msgspec.Raw | UnsetType = UNSET


def chat_json(
    model: Model, policy: Policy, body: bytes, base_id: str | None, checkpoint: Callable[[], None]
) -> bytes:
    """Return the JSON answer to a chat render body. Raises what `decode_body` and `render_chat` raise."""
    return encode(render_chat(model, policy, decode_body(body, ChatRequest), checkpoint, base_id))


def tokenize_json(model: Model, policy: Policy, body: bytes, checkpoint: Callable[[], None]) -> bytes:
    """Return the JSON answer to a tokenize body. Raises what `decode_body` and `tokenize` raise."""
    is_chat = decode_body(body, _Kind).messages is not UNSET
    request = decode_body(body, TokenizeChatRequest) if is_chat else decode_body(body, TokenizeRequest)
    return encode(tokenize(model, policy, request, checkpoint))


class CompletionStart(NamedTuple):
    """What the first job of a completion body has done: some prompts, and groups of those left."""

    plan: CompletionPlan
    done: bytes
    groups: list[range]


def completion_start(
    model: Model, policy: Policy, body: bytes, base_id: str | None, checkpoint: Callable[[], None]
) -> CompletionStart:
    """Decode a completion body and render prompts until they have cost a group's worth.

    What is left is cut into groups of about that cost, by the prompts' sizes and the speed just seen;
    a small rest is done here as well.

    Raises: what `decode_body`, `plan_completion` and `CompletionPlan.render` raise.
    """
    plan = plan_completion(model, policy, decode_body(body, CompletionRequest), base_id)
    n = len(plan.prompts)
    began = time.perf_counter()
    rendered = []
    chars = 0
    for index in range(n):
        checkpoint()
        rendered.append(plan.render(index))
        chars += plan.size(index) + 1
        spent = time.perf_counter() - began
        if spent >= _GROUP_S and index + 1 < n:
            groups = _groups(plan, index + 1, int(chars * _GROUP_S / spent) + 1)
            if len(groups) > 1:
                return CompletionStart(plan, _elements(rendered), groups)
            began, chars = time.perf_counter(), 0
    return CompletionStart(plan, _elements(rendered), [])


def completion_json(plan: CompletionPlan, group: range, checkpoint: Callable[[], None]) -> bytes:
    """Return the JSON elements of a group of prompts, without the brackets around them."""
    rendered = []
    for index in group:
        checkpoint()
        rendered.append(plan.render(index))
    return _elements(rendered)


def _groups(plan: CompletionPlan, first: int, chars_per_group: int) -> list[range]:
    groups = []
    start, chars = first, 0
    for index in range(first, len(plan.prompts)):
        chars += plan.size(index) + 1
        if chars >= chars_per_group:
            groups.append(range(start, index + 1))
            start, chars = index + 1, 0
    if start < len(plan.prompts):
        groups.append(range(start, len(plan.prompts)))
    return groups


def _elements(rendered: Sequence[object]) -> bytes:
    return encode(rendered)[1:-1]
