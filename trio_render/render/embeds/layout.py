"""A tensor as its file describes it: where its elements lie in the payload. Checked before torch sees it."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InvalidRequest

__all__ = [
    "ITEM_BYTES",
    "MAX_DIMENSIONS",
    "Layout",
    "SparseLayout",
    "checked_rows",
    "checked_sparse",
    "checked_view",
    "refusal",
]

ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
"""Element types that embeddings may have, by torch's names."""

MAX_DIMENSIONS = 3

_INDEX_TYPE = "int64"
_DENSE_FREE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Layout:
    """A strided tensor over a stretch of the payload. Nothing is checked by its making.

    Attributes:
        dtype: torch's name of the element type.
        start: first byte of the storage in the payload.
        elements: length of the storage. It lies within the payload.
        offset: the tensor's first element in the storage.
        shape, strides: in elements, as torch has them; whatever the file holds in their place.
    """

    dtype: str
    start: int
    elements: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SparseLayout:
    """A COO tensor: ``indices`` (dimensions, n) of int64, ``values`` (n, ...), and the dense ``shape``."""

    indices: Layout
    values: Layout
    shape: tuple[int, ...]


def refusal(message: str) -> InvalidRequest:
    """Return the error for a payload that is not accepted."""
    return InvalidRequest(message, "prompt_embeds")


def checked_rows(shape: tuple[int, ...], hidden_size: int, max_rows: int) -> None:
    """Check the shape that a file declares.

    Raises:
        InvalidRequest: neither (rows, hidden_size) nor (1, rows, hidden_size), or not 1 to ``max_rows`` rows.
    """
    if not _are_sizes(shape) or len(shape) not in (2, 3) or (len(shape) == 3 and shape[0] != 1):
        raise refusal("prompt_embeds must be a tensor of shape (rows, hidden size), or of a batch of one.")
    rows, width = shape[-2:]
    if width != hidden_size:
        raise refusal(f"prompt_embeds must have the model's hidden size, {hidden_size}.")
    if not 1 <= rows <= max_rows:
        raise refusal(f"prompt_embeds must have 1 to {max_rows} rows.")


def checked_view(layout: Layout) -> Layout:
    """Return ``layout`` if all its elements are floats in its storage, and are no more than that has.

    So an expanded view, which says one number many times, is refused: it would grow when copied.

    Raises: `InvalidRequest`.
    """
    if layout.dtype not in ITEM_BYTES:
        raise refusal("prompt_embeds must be of float16, bfloat16, float32 or float64.")
    return _within_storage(layout)


def checked_sparse(layout: SparseLayout, payload_bytes: int, model_item_bytes: int) -> SparseLayout:
    """Return ``layout`` if its parts fit each other and its dense form isn't much larger than the payload.

    What the indices say is for the one who reads them to check. `checked_rows` comes first.

    Raises: `InvalidRequest`.
    """
    indices, values = layout.indices, layout.values
    if indices.dtype != _INDEX_TYPE:
        raise refusal("The indices of sparse prompt_embeds must be of int64.")
    _within_storage(indices)
    checked_view(values)
    fits = len(indices.shape) == 2 and len(values.shape) >= 1 and indices.shape[1] == values.shape[0]
    indexed = indices.shape[0] if fits else 0
    if not 1 <= indexed <= len(layout.shape) or values.shape[1:] != layout.shape[indexed:]:
        raise refusal("The indices and values of sparse prompt_embeds don't fit its shape.")
    rows, width = layout.shape[-2:]
    n_values = values.shape[0]
    if n_values > rows * width:
        raise refusal("Sparse prompt_embeds must not have more values than elements.")
    dense_bytes = rows * width * (ITEM_BYTES[values.dtype] + model_item_bytes)
    if dense_bytes > _DENSE_FREE_BYTES + payload_bytes:
        raise refusal("Sparse prompt_embeds of this shape are too large; send them dense.")
    return layout


def _within_storage(layout: Layout) -> Layout:
    shape, strides, offset = layout.shape, layout.strides, layout.offset
    if not _are_sizes(shape) or not _are_sizes(strides) or type(offset) is not int or offset < 0:
        raise _misfit()
    if len(shape) != len(strides) or len(shape) > MAX_DIMENSIONS:
        raise _misfit()
    elements = 1
    for size in shape:
        elements *= size
    if elements > layout.elements:
        raise _misfit()
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if elements and last >= layout.elements:
        raise _misfit()
    return layout


def _misfit() -> InvalidRequest:
    return refusal("The tensor in prompt_embeds doesn't fit its storage.")


def _are_sizes(values: object) -> bool:
    return isinstance(values, tuple) and all(type(value) is int and value >= 0 for value in values)
