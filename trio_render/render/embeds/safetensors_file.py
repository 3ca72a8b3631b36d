"""The safetensors format: a length, a JSON header, and the bytes of one tensor.

Source: https://github.com/huggingface/safetensors, "Format". Read here instead of by its library, which
copies the tensor while it holds the GIL.
"""

from __future__ import annotations

import mmap
from math import prod

import msgspec

from .layout import ITEM_BYTES, MAX_DIMENSIONS, Layout, refusal

__all__ = ["safetensors_layout"]

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 64 * 1024
"""The format allows 100 MB; the header of one tensor has 64 bytes, and some metadata."""
_DTYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}
_METADATA = "__metadata__"


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def safetensors_layout(payload: mmap.mmap) -> Layout:
    """Return the layout of the one tensor in a safetensors file, which is the whole of ``payload``.

    Raises:
        InvalidRequest: not such a file, not exactly one tensor, or not of one of the four float types.
    """
    header_bytes = int.from_bytes(payload[:_LENGTH_BYTES], "little")
    start = _LENGTH_BYTES + header_bytes
    first = payload[_LENGTH_BYTES : _LENGTH_BYTES + 1]
    if start > len(payload) or first != b"{":
        raise refusal("prompt_embeds must be a tensor in safetensors or torch.save form.")
    if header_bytes > _MAX_HEADER_BYTES:
        raise refusal(f"The safetensors header in prompt_embeds is over {_MAX_HEADER_BYTES} bytes.")
    try:
        header = msgspec.json.decode(payload[_LENGTH_BYTES:start], type=dict[str, msgspec.Raw])
        header.pop(_METADATA, None)
        entries = [msgspec.json.decode(entry, type=_Entry) for entry in header.values()]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise refusal("The safetensors header in prompt_embeds is broken.") from None
    if len(entries) != 1:
        raise refusal(f"prompt_embeds must hold exactly one tensor, not {len(entries)}.")
    (entry,) = entries
    if entry.dtype not in _DTYPES:
        raise refusal("prompt_embeds must be of float16, bfloat16, float32 or float64.")
    dtype = _DTYPES[entry.dtype]
    if len(entry.shape) > MAX_DIMENSIONS or any(size < 0 for size in entry.shape):
        raise refusal("The safetensors header in prompt_embeds is broken.")
    elements = prod(entry.shape)
    n_bytes = elements * ITEM_BYTES[dtype]
    if entry.data_offsets != (0, n_bytes) or start + n_bytes != len(payload):
        raise refusal("The safetensors header in prompt_embeds doesn't fit the bytes behind it.")
    strides = tuple(prod(entry.shape[place + 1 :]) for place in range(len(entry.shape)))
    return Layout(dtype, start, elements, 0, entry.shape, strides)
