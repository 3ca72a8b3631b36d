"""The pickles inside torch.save's files, read without pickle: a tensor's description, and no code.

Understands what torch.save writes for tensors and parameters (protocol 2), the same operations that
``torch.load(weights_only=True)`` knows, and four names instead of its hundreds. Results are plain data and
`TensorPickle`, `SparsePickle`: nothing is looked up, called or allocated by a size that a payload declares.
"""

from __future__ import annotations

import io
import pickletools
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import InvalidRequest
from .layout import refusal

__all__ = ["MAX_PICKLE_BYTES", "SparsePickle", "StorageName", "TensorPickle", "read_pickle"]

MAX_PICKLE_BYTES = 64 * 1024
_MAX_OPERATIONS = 2000
"""A sparse tensor takes 100."""

_STORAGES = {
    "torch HalfStorage": "float16",
    "torch BFloat16Storage": "bfloat16",
    "torch FloatStorage": "float32",
    "torch DoubleStorage": "float64",
    "torch LongStorage": "int64",
    "torch IntStorage": "int32",
    "torch ShortStorage": "int16",
    "torch CharStorage": "int8",
    "torch ByteStorage": "uint8",
    "torch BoolStorage": "bool",
    "torch ComplexFloatStorage": "complex64",
    "torch ComplexDoubleStorage": "complex128",
}
_COO = "torch.sparse_coo"


@dataclass(frozen=True, slots=True)
class _Global:
    """A name in a pickle: ``module name``."""

    name: str


class StorageName(NamedTuple):
    """A storage as pickles refer to it: its key in the file, torch's name of its dtype, its length."""

    key: str
    dtype: str
    elements: int


@dataclass(frozen=True, slots=True)
class TensorPickle:
    """A strided tensor; ``offset``, ``shape`` and ``strides`` are whatever the pickle has in their place."""

    storage: StorageName
    offset: Any
    shape: Any
    strides: Any


@dataclass(frozen=True, slots=True)
class SparsePickle:
    """A COO tensor; ``shape`` is whatever the pickle has in its place."""

    indices: TensorPickle
    values: TensorPickle
    shape: Any


class _Mark:
    """Where a tuple, list or dict began on the stack."""


_MARK = _Mark()
_LITERALS = {"BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINSTRING", "BINFLOAT"}
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}


def read_pickle(data: bytes, start: int = 0) -> tuple[Any, int]:
    """Return the value of the pickle that begins at byte ``start``, and where the next one would.

    Raises:
        InvalidRequest: cut off, or something else than the pickles of tensors.
    """
    source = io.BytesIO(data)
    source.seek(start)
    machine = _Machine()
    try:
        for count, (operation, argument, _) in enumerate(pickletools.genops(source)):
            if count >= _MAX_OPERATIONS:
                raise _not_a_tensor()
            if operation.name == "STOP":
                return machine.stack.pop(), source.tell()
            machine.run(operation.name, argument)
    except InvalidRequest:
        raise
    except (ValueError, IndexError, KeyError, struct.error, OverflowError, EOFError):
        raise _not_a_tensor() from None
    raise _not_a_tensor()


def _not_a_tensor() -> InvalidRequest:
    return refusal("prompt_embeds must hold one plain tensor, whole, and nothing else.")


class _Machine:
    """A pickle machine's stack and memo, for the few operations that tensors need."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, name: str, argument: Any) -> None:
        """Do one operation. Raises what `read_pickle` catches."""
        stack = self.stack
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        else:
            match name:
                case "PROTO":
                    pass
                case "BINPUT" | "LONG_BINPUT":
                    self._memo[argument] = stack[-1]
                case "BINGET" | "LONG_BINGET":
                    stack.append(self._memo[argument])
                case "MARK":
                    stack.append(_MARK)
                case "EMPTY_TUPLE":
                    stack.append(())
                case "EMPTY_LIST":
                    stack.append([])
                case "EMPTY_DICT":
                    stack.append({})
                case "TUPLE":
                    stack.append(tuple(self._pop_to_mark()))
                case "TUPLE1" | "TUPLE2" | "TUPLE3":
                    stack.append(tuple(self._pop(int(name[-1]))))
                case "APPEND":
                    self._extend(self._pop(1))
                case "APPENDS":
                    self._extend(self._pop_to_mark())
                case "SETITEM":
                    self._update(self._pop(2))
                case "SETITEMS":
                    self._update(self._pop_to_mark())
                case "GLOBAL":
                    stack.append(_Global(argument))
                case "BINPERSID":
                    stack.append(_storage(stack.pop()))
                case "REDUCE":
                    function, arguments = self._pop(2)
                    stack.append(_called(function, arguments))
                case _:
                    raise _not_a_tensor()

    def _pop(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise _not_a_tensor()
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def _pop_to_mark(self) -> list[Any]:
        values: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        values.reverse()
        return values

    def _extend(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise _not_a_tensor()
        target += values

    def _update(self, values: list[Any]) -> None:
        target = self.stack[-1]
        # Keys of other kinds can take forever to hash: tuples of tuples, say.
        if type(target) is not dict or not all(type(key) is str for key in values[::2]):
            raise _not_a_tensor()
        target.update(zip(values[::2], values[1::2], strict=True))


def _storage(reference: Any) -> StorageName:
    if type(reference) is not tuple or len(reference) not in (5, 6):
        raise _not_a_tensor()
    kind, storage, key, _device, elements, *view = reference
    # The sixth field is in the legacy form only, and None since torch 0.4.
    if type(kind) is not str or kind != "storage" or any(part is not None for part in view):
        raise _not_a_tensor()
    if type(storage) is not _Global or type(key) is not str or type(elements) is not int or elements < 0:
        raise _not_a_tensor()
    if storage.name not in _STORAGES:
        raise refusal("prompt_embeds must be of float16, bfloat16, float32 or float64.")
    return StorageName(key, _STORAGES[storage.name], elements)


def _called(function: Any, arguments: Any) -> Any:
    if type(function) is not _Global or type(arguments) is not tuple:
        raise _not_a_tensor()
    match function.name, arguments:
        case "torch._utils _rebuild_tensor_v2", (StorageName() as storage, offset, shape, strides, *more):
            # Then come requires_grad, hooks and, from torch 2.0 on, what is special about the tensor.
            if any(part not in (None, {}) for part in more[2:]):
                raise refusal("prompt_embeds must be a plain tensor, not a lazily negated or conjugated one.")
            return TensorPickle(storage, offset, shape, strides)
        case "torch._utils _rebuild_parameter", (TensorPickle() as tensor, _, _):
            return tensor
        case "torch._utils _rebuild_sparse_tensor", (str() as layout, (indices, values, shape, *_)):
            if layout != _COO:
                raise refusal("Sparse prompt_embeds must have the COO layout.")
            if type(indices) is not TensorPickle or type(values) is not TensorPickle:
                raise _not_a_tensor()
            return SparsePickle(indices, values, shape)
        case "torch.serialization _get_layout", (str() as layout,):
            return layout
        case "torch Size", (tuple() as shape,):
            return shape
        case "collections OrderedDict", ():
            return {}
    raise _not_a_tensor()
