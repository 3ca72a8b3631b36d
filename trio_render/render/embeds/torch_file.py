"""torch.save's two file forms, zip and legacy -> where a tensor's elements lie in the payload.

``torch.load`` isn't called at all. It would copy storages while it holds the GIL, and allocate what a file
declares before it looks whether the file has it. What is accepted is what ``torch.load(weights_only=True)``
accepts for one tensor saved by ``torch.save``; checksums, which it skips too, aside.

Source: ``torch/serialization.py`` (``_save``, ``_legacy_save``); PKWARE's APPNOTE for zip.
"""

from __future__ import annotations

import mmap
import struct
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from ...errors import InvalidRequest
from .layout import ITEM_BYTES, Layout, SparseLayout, refusal
from .torch_pickle import (
    MAX_PICKLE_BYTES,
    SparsePickle,
    StorageName,
    TensorPickle,
    read_pickle,
)

__all__ = ["LEGACY_MAGIC", "ZIP_MAGIC", "legacy_layout", "zip_layout"]

ZIP_MAGIC = b"PK\x03\x04"
LEGACY_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""The pickle of torch's magic number."""

_LEGACY_PROTOCOL = 1001
_ITEM_BYTES = {**ITEM_BYTES, "int64": 8}

# ------------------------------------------------------------ zip

_END = struct.Struct("<4s4H2LH")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_MAX_ENTRIES = 64
"""A tensor's file has 7, a sparse one's 8."""
_ENCRYPTED = 1
_STORED = 0


class _Entry(NamedTuple):
    """An entry's place in the payload: its header's first byte, and its content's first and last."""

    header: int
    start: int
    end: int


def zip_layout(payload: mmap.mmap) -> Layout | SparseLayout:
    """Return the layout of the tensor in a file of torch.save.

    Raises:
        InvalidRequest: not such a file, compressed or overlapping entries, anything but one tensor.
    """
    entries = _zip_entries(payload)
    roots = [name[: -len("data.pkl")] for name in entries if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise _broken_zip()
    (root,) = roots
    order = entries.get(f"{root}byteorder")
    if order is not None and payload[order.start : order.end] != sys.byteorder.encode():
        raise refusal("The tensor in prompt_embeds has the other byte order.")
    described = entries[f"{root}data.pkl"]
    if described.end - described.start > MAX_PICKLE_BYTES:
        raise _broken_zip()
    value, _ = read_pickle(payload[described.start : described.end])

    def place(storage: StorageName) -> int:
        entry = entries.get(f"{root}data/{storage.key}")
        if entry is None or entry.end - entry.start != _storage_bytes(storage):
            raise _broken_zip()
        return entry.start

    return _layout(value, place)


def _zip_entries(payload: mmap.mmap) -> dict[str, _Entry]:
    """Return the entries by name; all are stored, apart from each other, and in front of the directory."""
    end = len(payload) - _END.size
    if end < 0:
        raise _broken_zip()
    signature, _, _, _, count, size, directory, comment = _END.unpack_from(payload, end)
    if signature != b"PK\x05\x06" or comment or count > _MAX_ENTRIES or directory + size > end:
        raise _broken_zip()
    entries: dict[str, _Entry] = {}
    at = directory
    for _ in range(count):
        if at + _CENTRAL.size > directory + size:
            raise _broken_zip()
        name, entry, at = _zip_entry(payload, at, directory)
        if name in entries:
            raise _broken_zip()
        entries[name] = entry
    if at != directory + size:
        raise _broken_zip()
    ordered = sorted(entries.values())
    if any(one.end > following.header for one, following in pairwise(ordered)):
        raise _broken_zip()
    return entries


def _zip_entry(payload: mmap.mmap, at: int, directory: int) -> tuple[str, _Entry, int]:
    """Read one entry of the directory, at ``at``. Returns its name, the entry, and where the next one is."""
    signature, _, _, flags, method, _, _, _, packed, size, n_name, n_extra, n_comment, *_, header = (
        _CENTRAL.unpack_from(payload, at)
    )
    start = at + _CENTRAL.size
    name = payload[start : start + n_name]
    stored = method == _STORED and packed == size and not flags & _ENCRYPTED
    if signature != b"PK\x01\x02" or not stored or header + _LOCAL.size > directory:
        raise _broken_zip()
    signature, _, _, method, *_, n_local_name, n_local_extra = _LOCAL.unpack_from(payload, header)
    name_start = header + _LOCAL.size
    content = name_start + n_local_name + n_local_extra
    same = method == _STORED and payload[name_start : name_start + n_local_name] == name
    if signature != ZIP_MAGIC or not same or content + size > directory:
        raise _broken_zip()
    entry = _Entry(header, content, content + size)
    return name.decode("utf-8", "replace"), entry, start + n_name + n_extra + n_comment


def _broken_zip() -> InvalidRequest:
    return refusal("The torch.save file in prompt_embeds is broken, or not one that torch.save writes.")


# ------------------------------------------------------------ legacy


def legacy_layout(payload: mmap.mmap) -> Layout | SparseLayout:
    """Return the layout of the tensor in a file of ``torch.save(..., _use_new_zipfile_serialization=False)``.

    Five pickles (magic number, version, system, tensor, storage keys), then each storage's length and bytes.

    Raises:
        InvalidRequest: not such a file, or anything but one tensor.
    """
    head = payload[:MAX_PICKLE_BYTES]
    version, at = read_pickle(head, len(LEGACY_MAGIC))
    system, at = read_pickle(head, at)
    if version != _LEGACY_PROTOCOL or type(system) is not dict:
        raise _broken_legacy()
    if system.get("little_endian") is not (sys.byteorder == "little"):
        raise refusal("The tensor in prompt_embeds has the other byte order.")
    value, at = read_pickle(head, at)
    keys, at = read_pickle(head, at)
    storages = {storage.key: storage for storage in _storages(value)}
    if type(keys) is not list or not all(type(key) is str and key in storages for key in keys):
        raise _broken_legacy()
    places: dict[str, int] = {}
    for key in keys:
        length = payload[at : at + 8]
        start = at + 8
        at = start + _storage_bytes(storages[key])
        if len(length) < 8 or int.from_bytes(length, "little") != storages[key].elements or at > len(payload):
            raise _broken_legacy()
        places[key] = start
    if at != len(payload):
        raise _broken_legacy()

    def place(storage: StorageName) -> int:
        if storage.key not in places or storages[storage.key] != storage:
            raise _broken_legacy()
        return places[storage.key]

    return _layout(value, place)


def _broken_legacy() -> InvalidRequest:
    return refusal("The legacy torch.save file in prompt_embeds is broken.")


# ------------------------------------------------------------ both


def _storages(value: Any) -> list[StorageName]:
    if type(value) is TensorPickle:
        return [value.storage]
    if type(value) is SparsePickle:
        return [value.indices.storage, value.values.storage]
    raise _not_one_tensor()


def _layout(value: Any, place: Callable[[StorageName], int]) -> Layout | SparseLayout:
    if type(value) is TensorPickle:
        storage = value.storage
        start = place(storage)
        return Layout(storage.dtype, start, storage.elements, value.offset, value.shape, value.strides)
    if type(value) is SparsePickle:
        indices, values = _layout(value.indices, place), _layout(value.values, place)
        assert isinstance(indices, Layout)
        assert isinstance(values, Layout)
        return SparseLayout(indices, values, value.shape)
    raise _not_one_tensor()


def _not_one_tensor() -> InvalidRequest:
    return refusal("prompt_embeds must hold one plain tensor, whole, and nothing else.")


def _storage_bytes(storage: StorageName) -> int:
    if storage.dtype not in _ITEM_BYTES:
        raise refusal("prompt_embeds must be of float16, bfloat16, float32 or float64.")
    return storage.elements * _ITEM_BYTES[storage.dtype]
