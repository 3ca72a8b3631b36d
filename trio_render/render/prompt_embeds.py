"""Prompt embeddings: base64 text -> a tensor of (rows, hidden size) in the model's dtype.

A payload is believed in nothing. Its bytes are decoded into memory of its own size, its file's description
is checked against them (`render.embeds`), and only then a tensor is laid over them. No code of a payload
runs, and no size that it declares is allocated.

PyTorch is imported by whoever handles a tensor, and by nobody else.
"""

from __future__ import annotations

import math
import mmap
from typing import TYPE_CHECKING

from ..errors import InvalidRequest
from ..model.loading import Model
from ..workspace import Body, Checkpoint, Workspace
from .embeds.base64_text import decode_base64
from .embeds.layout import (
    ITEM_BYTES,
    Layout,
    SparseLayout,
    checked_rows,
    checked_sparse,
    checked_view,
    refusal,
)
from .embeds.memory import anonymous_memory
from .embeds.safetensors_file import safetensors_layout
from .embeds.torch_file import LEGACY_MAGIC, ZIP_MAGIC, legacy_layout, zip_layout

if TYPE_CHECKING:
    import torch

__all__ = ["check_prompt_embeds", "prompt_embeds", "read_prompt_embeds", "token_ids_only"]

_BLOCK_ELEMENTS = 256 * 1024
"""What is copied and checked at a time, in well under a millisecond."""


def prompt_embeds(
    workspace: Workspace, checkpoint: Checkpoint, body: Body, text: str | None = None
) -> torch.Tensor:
    """Return `read_prompt_embeds` of ``text``, or else of the base64 text in ``body``; a job."""
    try:
        return read_prompt_embeds(workspace.model, body if text is None else text, checkpoint)
    except InvalidRequest as error:
        # Its traceback keeps the payload, and the event loop would be the one to free that.
        raise error.with_traceback(None) from None


def check_prompt_embeds(
    workspace: Workspace, checkpoint: Checkpoint, body: Body, text: str | None = None
) -> None:
    """Do what `prompt_embeds` does, for its errors alone: a tensor is much to send back from a process."""
    prompt_embeds(workspace, checkpoint, body, text)


def token_ids_only() -> InvalidRequest:
    """Return what rendering answers to valid embeddings."""
    return refusal("prompt_embeds are valid, but rendering makes requests of token ids only.")


def read_prompt_embeds(model: Model, text: str | Body, checkpoint: Checkpoint) -> torch.Tensor:
    """Return the tensor in ``text``: contiguous, of shape (rows, hidden size), in the model's dtype.

    It lies in memory of its own, on the CPU: over the decoded payload where that has its form already.

    Args:
        text: base64 of a file with one tensor, as a text or as ASCII in pieces. The file is of the
            safetensors format, or one of torch.save (zip, or the legacy form), of a tensor or parameter of
            float16, bfloat16, float32 or float64, strided or COO, of shape (rows, hidden size) or (1, rows,
            hidden size), saved on any device.

    Raises:
        InvalidRequest: anything else. Also where a number is NaN or infinite, or becomes so in the model's
            dtype: an engine that computes with one answers nonsense, for its whole batch at worst.
    """
    payload = decode_base64(text, checkpoint)
    layout = _file_layout(payload)
    checked_rows(layout.shape, _hidden_size(model), model.max_model_len - 1)
    if isinstance(layout, SparseLayout):
        item_bytes = ITEM_BYTES[model.dtype]
        source = _densified(payload, checked_sparse(layout, len(payload), item_bytes), checkpoint)
    else:
        source = _laid_over(payload, checked_view(layout))
    return _settled(source[0] if source.dim() == 3 else source, model, len(payload), checkpoint)


def _hidden_size(model: Model) -> int:
    if model.hidden_size is None:
        raise refusal("prompt_embeds are not available: the model's config has no hidden size.")
    return model.hidden_size


def _file_layout(payload: mmap.mmap) -> Layout | SparseLayout:
    if payload[: len(ZIP_MAGIC)] == ZIP_MAGIC:
        return zip_layout(payload)
    if payload[: len(LEGACY_MAGIC)] == LEGACY_MAGIC:
        return legacy_layout(payload)
    return safetensors_layout(payload)


def _laid_over(payload: mmap.mmap, layout: Layout) -> torch.Tensor:
    """Return a tensor over the payload's bytes, or over a copy where those are not aligned to its dtype."""
    import torch

    dtype = getattr(torch, layout.dtype)
    memory, start = payload, layout.start
    n_bytes = layout.elements * dtype.itemsize
    if start % dtype.itemsize:
        memory, start = anonymous_memory(n_bytes), 0
        odd = torch.frombuffer(payload, dtype=torch.uint8, count=n_bytes, offset=layout.start)
        torch.frombuffer(memory, dtype=torch.uint8).copy_(odd)
    storage = torch.frombuffer(memory, dtype=dtype, count=layout.elements, offset=start)
    return storage.as_strided(layout.shape, layout.strides, layout.offset)


def _densified(payload: mmap.mmap, layout: SparseLayout, checkpoint: Checkpoint) -> torch.Tensor:
    """Return the dense form of a COO tensor, values at one place added up."""
    import torch

    dtype = getattr(torch, layout.values.dtype)
    dense = torch.zeros(layout.shape, dtype=dtype)
    n_values = layout.values.shape[0]
    if not n_values:
        return dense
    indices = _laid_over(payload, layout.indices)
    values = _laid_over(payload, layout.values)
    # Where each value lies, if dimensions with an index of their own were one.
    place = torch.zeros(n_values, dtype=torch.int64)
    for dimension, index in enumerate(indices):
        checkpoint()
        low, high = (int(bound) for bound in index.aminmax())
        if low < 0 or high >= layout.shape[dimension]:
            raise refusal("The indices of sparse prompt_embeds are out of range.")
        place.mul_(layout.shape[dimension]).add_(index)
    flat = dense.view(-1, *layout.shape[len(indices) :])
    block = max(1, _BLOCK_ELEMENTS // math.prod(layout.shape[len(indices) :]))
    for start in range(0, n_values, block):
        checkpoint()
        flat.index_add_(0, place[start : start + block], values[start : start + block])
    return dense


def _settled(source: torch.Tensor, model: Model, payload_bytes: int, checkpoint: Checkpoint) -> torch.Tensor:
    """Return ``source``, or a contiguous copy in the model's dtype, every number of it finite."""
    import torch

    dtype = getattr(torch, model.dtype)
    rows, width = source.shape
    n_bytes = rows * width * dtype.itemsize
    # A slice of something much larger would keep all of that.
    fits = source.dtype == dtype and source.is_contiguous() and 2 * n_bytes >= payload_bytes
    target = source if fits else torch.frombuffer(anonymous_memory(n_bytes), dtype=dtype).view(rows, width)
    block = max(1, _BLOCK_ELEMENTS // width)
    for start in range(0, rows, block):
        checkpoint()
        part = target[start : start + block]
        if not fits:
            part.copy_(source[start : start + block])
        # Both are NaN where a number is: one pass, ten times faster than isfinite().all().
        if not all(math.isfinite(bound) for bound in part.aminmax()):
            raise refusal("prompt_embeds must be finite in the model's dtype: no NaN, no infinity.")
    return target
