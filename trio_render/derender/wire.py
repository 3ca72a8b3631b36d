"""Body bytes -> answer bytes: one job per request, so that the event loop never sees a document.

Jobs take ``(workspace, checkpoint, body)``, as those of `trio_render.render.wire` do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ..errors import InvalidRequest
from ..protocol.decoding import decode_body, encode
from ..protocol.derender import DerenderChatRequest, DerenderCompletionRequest
from ..protocol.stream import DerenderChatChunk, DerenderCompletionChunk
from ..protocol.tokenize import DetokenizeRequest
from ..workspace import Workspace
from .bounds import check_chunk
from .chat import derender_chat
from .completion import derender_completion
from .detokenize_ids import detokenize_ids

__all__ = ["chat_json", "completion_json", "detokenize_json"]

Checkpoint = Callable[[], None]


class _Kind(msgspec.Struct):
    stream: bool | None = False


def chat_json(workspace: Workspace, checkpoint: Checkpoint, body: Sequence[bytes]) -> bytes:
    """Return the JSON answer to a chat derender body. Raises what `derender_chat` raises."""
    data = b"".join(body)
    _refuse_stream(workspace, data, DerenderChatChunk)
    checkpoint()
    request = decode_body(data, DerenderChatRequest)
    checkpoint()
    answer = derender_chat(workspace.model, workspace.policy, workspace.fragments, request, checkpoint)
    return encode(answer)


def completion_json(workspace: Workspace, checkpoint: Checkpoint, body: Sequence[bytes]) -> bytes:
    """Return the JSON answer to a completion derender body. Raises what `derender_completion` raises."""
    data = b"".join(body)
    _refuse_stream(workspace, data, DerenderCompletionChunk)
    checkpoint()
    request = decode_body(data, DerenderCompletionRequest)
    checkpoint()
    return encode(derender_completion(workspace.model, workspace.policy, request, checkpoint))


def detokenize_json(workspace: Workspace, checkpoint: Checkpoint, body: Sequence[bytes]) -> bytes:
    """Return the JSON answer to a detokenize body. Raises what `detokenize_ids` raises."""
    checkpoint()
    request = decode_body(b"".join(body), DetokenizeRequest)
    return encode(detokenize_ids(workspace.model, workspace.policy, request))


def _refuse_stream(
    workspace: Workspace, body: bytes, type_: type[DerenderChatChunk] | type[DerenderCompletionChunk]
) -> None:
    if decode_body(body, _Kind).stream:
        check_chunk(workspace.model, workspace.policy, decode_body(body, type_))
        raise InvalidRequest("Streamed derendering is not available on this server yet.", "stream")
