"""Streamed derendering: chunks of an engine's output in, OpenAI's chunks out.

Source: vLLM 0.33 ``entrypoints/scale_out/derender`` for the bodies of one chunk each, and OpenAI's
``chat.completion.chunk`` and streamed ``text_completion``. What a client carries as ``stream_state`` is
opaque to it; see `trio_render.derender.stream_seal`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from .chat import ChatRequest
from .completion import CompletionRequest
from .logprobs import GenerateLogprobs
from .sampling import Int64

__all__ = [
    "CallPiece",
    "ChatChunk",
    "ChatChunkChoice",
    "ChatDelta",
    "ChatStreamRequest",
    "ChunkChoice",
    "CompletionChunk",
    "CompletionChunkChoice",
    "CompletionStreamRequest",
    "DerenderChatChunk",
    "DerenderCompletionChunk",
    "DerenderedChatChunk",
    "DerenderedCompletionChunk",
    "FunctionPiece",
    "GenerateChunk",
    "SealedState",
]

_Index = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The next tokens of one sequence. ``stop_reason`` is a token id, a stop string, or nothing."""

    index: _Index
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    stop_reason: Any = None
    logprobs: GenerateLogprobs | None = None
    routed_experts: Any = None


class GenerateChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an engine's streamed answer. ``choices`` may be empty, as beside a final ``usage``.

    ``prompt_logprobs``: see `GenerateResponse`; with an answer's first piece.
    """

    request_id: str
    choices: list[ChunkChoice]
    usage: dict[str, Any] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[str, dict[str, Any]] | None] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    weight_version: Any = None
    metrics: dict[str, Any] | None = None


class SealedState(msgspec.Struct, frozen=True, kw_only=True):
    """What a client hands back unread: ``v`` is a text. Further keys are ignored."""

    v: Any = None


class _Stream(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    prompt_token_ids: list[int] | None = None
    prompt_tokens: Int64 | None = None


class ChatStreamRequest(_Stream, frozen=True, kw_only=True):
    """What a whole chat stream has in common; the first message of its WebSocket.

    Fields as in `DerenderChatRequest`: the request that was rendered, its prompt or the prompt's tail, and
    the count that goes into ``usage``.
    """

    chat_request: ChatRequest | None = None


class CompletionStreamRequest(_Stream, frozen=True, kw_only=True):
    """What a whole completion stream has in common; the first message of its WebSocket."""

    completion_request: CompletionRequest | None = None


class DerenderChatChunk(ChatStreamRequest, frozen=True, kw_only=True):
    """Streamed body of ``POST /v1/chat/completions/derender``: one chunk, with at most one choice.

    ``stream_state`` is that of the answer to the choice's chunk before.
    """

    generate_chunk: GenerateChunk
    stream_state: SealedState | None = None
    stream: bool | None = False


class DerenderCompletionChunk(CompletionStreamRequest, frozen=True, kw_only=True):
    """Streamed body of ``POST /v1/completions/derender``."""

    generate_chunk: GenerateChunk
    stream_state: SealedState | None = None
    stream: bool | None = False


class FunctionPiece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a chunk adds to a call: its name, once, and the next piece of its arguments."""

    name: str | None = None
    arguments: str | None = None


class CallPiece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a chunk adds to the call ``index``. Its first piece has the id."""

    index: int
    id: str | None = None
    type: str | None = None
    function: FunctionPiece


class ChatDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a chunk adds to the assistant's message. ``role`` comes once, with a choice's first chunk."""

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallPiece] | None = None


class ChatChunkChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One choice of a chat chunk. ``logprobs``, kept as JSON, describe this chunk's token ids."""

    index: int
    delta: ChatDelta
    finish_reason: str | None
    logprobs: msgspec.Raw | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    routed_experts: Any = None


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A chat stream's next chunk, as OpenAI streams it."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: dict[str, Any] | None = None
    prompt_token_ids: list[int] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    weight_version: Any = None
    metrics: dict[str, Any] | None = None


class CompletionChunkChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One choice of a completion chunk. ``text_offset`` in ``logprobs`` counts from the stream's start."""

    index: int
    text: str
    finish_reason: str | None
    logprobs: msgspec.Raw | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    routed_experts: Any = None


class CompletionChunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A completion stream's next chunk, as OpenAI streams it."""

    id: str
    object: str
    created: int
    model: str
    choices: list[CompletionChunkChoice]
    usage: dict[str, Any] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    weight_version: Any = None
    metrics: dict[str, Any] | None = None


class DerenderedChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a `DerenderChatChunk`. The state goes with the choice's next chunk."""

    chunk: ChatChunk
    stream_state: SealedState


class DerenderedCompletionChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a `DerenderCompletionChunk`."""

    chunk: CompletionChunk
    stream_state: SealedState
