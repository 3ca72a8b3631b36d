"""Body bytes -> answer bytes: one job per request, so that the event loop never sees a document.

Jobs take ``(workspace, checkpoint, body)``, as those of `trio_render.render.wire` do.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

import msgspec

from ..errors import MalformedRequest
from ..protocol.decoding import decode_body, encode
from ..protocol.derender import DerenderChatRequest, DerenderCompletionRequest
from ..protocol.stream import DerenderChatChunk, DerenderCompletionChunk
from ..protocol.tokenize import DetokenizeRequest
from ..workspace import Body, Checkpoint, Workspace
from .chat import derender_chat
from .completion import derender_completion
from .detokenize_ids import detokenize_ids
from .stream_carried import carried_chat_chunk, carried_completion_chunk

__all__ = ["chat_json", "completion_json", "detokenize_json", "holds_chunk"]

R = TypeVar("R", DerenderChatRequest, DerenderCompletionRequest)
C = TypeVar("C", DerenderChatChunk, DerenderCompletionChunk)

_CHUNK_KEY = b'"generate_chunk"'
_LOOK_BYTES = 4096


def holds_chunk(body: Body) -> bool:
    """Say whether a body seems to be a streamed chunk's. Looks at so little of it that this costs nothing."""
    return any(_CHUNK_KEY in bytes(part[:_LOOK_BYTES]) for part in body[:2])


class _Kind(msgspec.Struct):
    stream: bool | None = False


def chat_json(workspace: Workspace, checkpoint: Checkpoint, body: Body) -> bytes:
    """Return the JSON answer to a chat derender body, whole or one streamed chunk.

    Raises what `derender_chat` and `carried_chat_chunk` raise.
    """
    request = _decode(b"".join(body), DerenderChatRequest, DerenderChatChunk)
    checkpoint()
    if isinstance(request, DerenderChatChunk):
        return encode(carried_chat_chunk(workspace, request, checkpoint))
    answer = derender_chat(workspace.model, workspace.policy, workspace.fragments, request, checkpoint)
    checkpoint()
    return encode(answer)


def completion_json(workspace: Workspace, checkpoint: Checkpoint, body: Body) -> bytes:
    """Return the JSON answer to a completion derender body, whole or one streamed chunk.

    Raises what `derender_completion` and `carried_completion_chunk` raise.
    """
    request = _decode(b"".join(body), DerenderCompletionRequest, DerenderCompletionChunk)
    checkpoint()
    if isinstance(request, DerenderCompletionChunk):
        return encode(carried_completion_chunk(workspace, request, checkpoint))
    answer = derender_completion(workspace.model, workspace.policy, request, checkpoint)
    checkpoint()
    return encode(answer)


def detokenize_json(workspace: Workspace, checkpoint: Checkpoint, body: Body) -> bytes:
    """Return the JSON answer to a detokenize body. Raises what `detokenize_ids` raises."""
    checkpoint()
    request = decode_body(b"".join(body), DetokenizeRequest)
    return encode(detokenize_ids(workspace.model, workspace.policy, request))


def _decode(body: bytes, whole: type[R], chunk: type[C]) -> R | C:
    """Return a whole answer's body or a streamed chunk's, which ``stream`` tells apart."""
    if _CHUNK_KEY in body:
        # Nearly always a chunk, so that is tried first: chunks are many, and small.
        with suppress(MalformedRequest):
            given = decode_body(body, chunk)
            if given.stream:
                return given
    try:
        request = decode_body(body, whole)
    except MalformedRequest:
        if not decode_body(body, _Kind).stream:
            raise
    else:
        if not request.stream:
            return request
    return decode_body(body, chunk)
