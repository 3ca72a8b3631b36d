"""A stream's state as its client carries it: packed, checked, and bound to its stream.

The check is BLAKE2b over the stream's kind, its request id and the packed state. With the operator's key
it can't be forged; without one it still tells damage, and every field is checked by itself.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import blake2b
from hmac import compare_digest
from typing import Literal

import msgspec

from ..errors import MalformedRequest
from ..model.loading import Model
from ..protocol.stream import SealedState
from .stream_state import StreamState

__all__ = ["StreamKind", "seal", "unseal"]

StreamKind = Literal["chat", "completion"]

_FORMAT = b"stream_state 1"
"""To be changed with `StreamState`: what another version has sealed is then refused."""
_CHECK_BYTES = 16
_MAX_CHARS = 262_144
"""More than any state takes: some texts of 4,096 characters in base64, and little else."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StreamState)


def seal(state: StreamState, key: bytes, kind: StreamKind, request_id: str) -> SealedState:
    """Return ``state`` for the client. ``key`` has up to 64 bytes; empty: unauthenticated."""
    packed = _encoder.encode(state)
    return SealedState(v=b64encode(_check(packed, key, kind, request_id) + packed).decode())


def unseal(sealed: SealedState, model: Model, key: bytes, kind: StreamKind, request_id: str) -> StreamState:
    """Return what `seal` was given.

    Raises:
        MalformedRequest: (``body.stream_state``) nothing that this server, or one with its key, has sealed
            for this kind of stream and request id; or what no stream of this model leaves behind. The
            message is always the same.
    """
    state = _opened(sealed.v, key, kind, request_id)
    if state is None or not state.fits(model):
        raise MalformedRequest(
            "The stream_state is not that of the chunk before in this stream.", "body.stream_state"
        )
    return state


def _opened(text: object, key: bytes, kind: StreamKind, request_id: str) -> StreamState | None:
    if not isinstance(text, str) or len(text) > _MAX_CHARS:
        return None
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        return None
    check, packed = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
    if not compare_digest(check, _check(packed, key, kind, request_id)):
        return None
    try:
        return _decoder.decode(packed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _check(packed: bytes, key: bytes, kind: StreamKind, request_id: str) -> bytes:
    owner = request_id.encode()
    check = blake2b(digest_size=_CHECK_BYTES, key=key, person=_FORMAT)
    check.update(b"%b %d " % (kind.encode(), len(owner)))
    check.update(owner)
    check.update(packed)
    return check.digest()
