"""Body bytes -> answer bytes: one job per request, so that the event loop never sees a document."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..errors import InvalidRequest
from ..model.loading import Model
from ..policy import Policy
from ..protocol.decoding import decode_body, encode
from ..protocol.derender import DerenderChatRequest, DerenderCompletionRequest
from ..protocol.stream import DerenderChatChunk, DerenderCompletionChunk
from ..protocol.tokenize import DetokenizeRequest
from .bounds import check_chunk
from .chat import derender_chat
from .completion import derender_completion
from .detokenize_ids import detokenize_ids
from .logprobs import FragmentCache

__all__ = ["chat_json", "completion_json", "detokenize_json"]


class _Kind(msgspec.Struct):
    stream: bool | None = False


def chat_json(
    model: Model, policy: Policy, cache: FragmentCache, body: bytes, checkpoint: Callable[[], None]
) -> bytes:
    """Return the JSON answer to a chat derender body. Raises what `derender_chat` raises."""
    _refuse_stream(model, policy, body, DerenderChatChunk)
    return encode(derender_chat(model, policy, cache, decode_body(body, DerenderChatRequest), checkpoint))


def completion_json(model: Model, policy: Policy, body: bytes, checkpoint: Callable[[], None]) -> bytes:
    """Return the JSON answer to a completion derender body. Raises what `derender_completion` raises."""
    _refuse_stream(model, policy, body, DerenderCompletionChunk)
    return encode(
        derender_completion(model, policy, decode_body(body, DerenderCompletionRequest), checkpoint)
    )


def detokenize_json(model: Model, policy: Policy, body: bytes) -> bytes:
    """Return the JSON answer to a detokenize body. Raises what `detokenize_ids` raises."""
    return encode(detokenize_ids(model, policy, decode_body(body, DetokenizeRequest)))


def _refuse_stream(
    model: Model, policy: Policy, body: bytes, type_: type[DerenderChatChunk] | type[DerenderCompletionChunk]
) -> None:
    if decode_body(body, _Kind).stream:
        check_chunk(model, policy, decode_body(body, type_))
        raise InvalidRequest("Streamed derendering is not available on this server yet.", "stream")
