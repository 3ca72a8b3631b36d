"""Files with tensors: as the libraries write them, and as nobody should."""

import io
import json
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import pybase64
import torch
from safetensors.torch import save
from torch import Tensor

HIDDEN = 64
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

# ------------------------------------------------------------ files of the libraries


def base64_of(data: bytes) -> str:
    return pybase64.b64encode(data).decode()


def zip_file(value: Any, **options: Any) -> bytes:
    """A file of torch.save."""
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def legacy_file(value: Any) -> bytes:
    """A file of torch.save before 1.6."""
    return zip_file(value, _use_new_zipfile_serialization=False)


def safetensors_file(value: Tensor, **more: Tensor) -> bytes:
    return save({"prompt_embeds": value, **more})


FORMS: dict[str, Callable[[Tensor], bytes]] = {
    "zip": zip_file,
    "legacy": legacy_file,
    "safetensors": safetensors_file,
}


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def coo(indices: Any, values: Any, shape: tuple[int, ...]) -> Tensor:
    """A sparse tensor that nobody has checked."""
    return torch.sparse_coo_tensor(
        torch.as_tensor(indices), torch.as_tensor(values), shape, check_invariants=False
    )


# ------------------------------------------------------------ files by hand


class Call:
    """Pickled as a call of ``function``."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._reduced = (function, arguments)

    def __reduce__(self) -> Any:
        return self._reduced


class Stored:
    """Pickled as a reference to a storage."""

    def __init__(self, elements: Any, kind: Any = torch.FloatStorage, key: str = "0") -> None:
        self.reference = ("storage", kind, key, "cpu", elements)


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        return value.reference if isinstance(value, Stored) else None


def pickled(value: Any, protocol: int = 2) -> bytes:
    file = io.BytesIO()
    _Pickler(file, protocol).dump(value)
    return file.getvalue()


def tensor_call(storage: Stored, offset: Any, shape: Any, strides: Any, *more: Any) -> Call:
    """What torch.save pickles for a tensor."""
    return Call(torch._utils._rebuild_tensor_v2, storage, offset, shape, strides, False, OrderedDict(), *more)


def sparse_call(indices: Any, values: Any, shape: Any, layout: str = "torch.sparse_coo") -> Call:
    """What torch.save pickles for a sparse tensor."""
    named = Call(torch.serialization._get_layout, layout)
    return Call(torch._utils._rebuild_sparse_tensor, named, (indices, values, shape, True))


def zipped(
    data_pkl: bytes,
    storages: Mapping[str, bytes],
    compression: int = zipfile.ZIP_STORED,
    **others: bytes,
) -> bytes:
    """A file like torch.save's around a pickle of one's own."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("archive/data.pkl", data_pkl)
        archive.writestr("archive/version", b"3\n")
        for name, content in others.items():
            archive.writestr(f"archive/{name}", content)
        for key, content in storages.items():
            archive.writestr(f"archive/data/{key}", content)
    return file.getvalue()


def zip_of(
    shape: Any = (3, HIDDEN), strides: Any = (HIDDEN, 1), offset: Any = 0, elements: int = 3 * HIDDEN
) -> bytes:
    """A file of float32 ones with a description of one's own."""
    content = torch.ones(elements).numpy().tobytes()
    return zipped(pickled(tensor_call(Stored(elements), offset, shape, strides)), {"0": content})


def legacy_of(value: Any, keys: Any = ("0",), storages: bytes = b"", system: Any = None) -> bytes:
    """A legacy file with an object of one's own."""
    described = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    parts = [0x1950A86A20F9469CFC6C, 1001, described if system is None else system, value, list(keys)]
    return b"".join(map(pickled, parts)) + storages


def legacy_storage(elements: int, content: bytes) -> bytes:
    return struct.pack("<q", elements) + content


def legacy_reference(elements: Any, kind: Any = torch.FloatStorage) -> Stored:
    stored = Stored(elements, kind)
    stored.reference = (*stored.reference, None)  # type: ignore[assignment]
    return stored


def safetensors_of(header: Any, data: bytes = b"", declared: int | None = None) -> bytes:
    """A safetensors file with a header of one's own."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if declared is None else declared) + text + data


def entry(dtype: str = "F32", shape: Any = (3, HIDDEN), offsets: Any = (0, 3 * HIDDEN * 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}
