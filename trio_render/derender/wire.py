"""Body bytes -> answer bytes: one job per request, so that the event loop never sees a document.

Jobs take ``(workspace, checkpoint, body)``, as those of `trio_render.render.wire` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ..errors import InvalidRequest, MalformedRequest
from ..protocol.decoding import decode_body, encode
from ..protocol.derender import DerenderChatRequest, DerenderCompletionRequest
from ..protocol.stream import DerenderChatChunk, DerenderCompletionChunk
from ..protocol.tokenize import DetokenizeRequest
from ..workspace import Checkpoint, Workspace
from .bounds import check_chunk
from .chat import derender_chat
from .completion import derender_completion
from .detokenize_ids import detokenize_ids

__all__ = ["chat_json", "completion_json", "detokenize_json"]

R = TypeVar("R", DerenderChatRequest, DerenderCompletionRequest)


class _Kind(msgspec.Struct):
    stream: bool | None = False


def chat_json(workspace: Workspace, checkpoint: Checkpoint, body: Sequence[bytes]) -> bytes:
    """Return the JSON answer to a chat derender body. Raises what `derender_chat` raises."""
    request = _decode(workspace, b"".join(body), DerenderChatRequest, DerenderChatChunk)
    checkpoint()
    answer = derender_chat(workspace.model, workspace.policy, workspace.fragments, request, checkpoint)
    checkpoint()
    return encode(answer)


def completion_json(workspace: Workspace, checkpoint: Checkpoint, body: Sequence[bytes]) -> bytes:
    """Return the JSON answer to a completion derender body. Raises what `derender_completion` raises."""
    request = _decode(workspace, b"".join(body), DerenderCompletionRequest, DerenderCompletionChunk)
    checkpoint()
    answer = derender_completion(workspace.model, workspace.policy, request, checkpoint)
    checkpoint()
    return encode(answer)


def detokenize_json(workspace: Workspace, checkpoint: Checkpoint, body: Sequence[bytes]) -> bytes:
    """Return the JSON answer to a detokenize body. Raises what `detokenize_ids` raises."""
    checkpoint()
    request = decode_body(b"".join(body), DetokenizeRequest)
    return encode(detokenize_ids(workspace.model, workspace.policy, request))


def _decode(
    workspace: Workspace,
    body: bytes,
    whole: type[R],
    chunk: type[DerenderChatChunk] | type[DerenderCompletionChunk],
) -> R:
    """Return a whole answer's body. A streamed one is told apart only when it is none."""
    try:
        request = decode_body(body, whole)
    except MalformedRequest:
        if not decode_body(body, _Kind).stream:
            raise
    else:
        if not request.stream:
            return request
    check_chunk(workspace.model, workspace.policy, decode_body(body, chunk))
    raise InvalidRequest("Streamed derendering is not available on this server yet.", "stream")
